"""Whom a write is about: named by what they sent, and said where it is not known."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web import effects
from controlplane.web.effects import NAMED_MAX, in_words, tenants_of
from tests.controlplane.telemetry.filling import store
from wire.write_body import Series


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


def sent(path: Path, **pools: dict[str, int]) -> None:
    """Requests of each tenant to each pool, begun half an hour ago."""
    now_ms = int(time.time() * 1000)
    times_ms = [now_ms - 1000 * ago for ago in range(1800, -1, -15)]
    series = [
        Series(
            {"__name__": "headworks_gateway_requests_total", "gateway": "gw-1", "pool": pool, "tenant": tenant},
            [(at_ms, count * place / (len(times_ms) - 1)) for place, at_ms in enumerate(times_ms)],
        )
        for pool, tenants in pools.items()
        for tenant, count in tenants.items()
    ]
    store(path, series, Owner("gateway", "gw-1"))


def test_those_who_sent_requests_to_the_pools_are_named(own_store: Path) -> None:
    sent(own_store, chat={"acme": 300, "search": 900}, other={"beta": 500})
    # Counters are drawn out to the window's ends.
    assert re.fullmatch(r"In the last hour search and acme sent 1,2[01]\d requests there\.", tenants_of(["chat"]))
    assert "beta" not in tenants_of(["chat"])
    assert "search, beta and acme" in tenants_of(["chat", "other"])


def test_those_who_sent_requests_of_several_classes_are_named_together(own_store: Path) -> None:
    now_ms = int(time.time() * 1000)
    times_ms = [now_ms - 1000 * ago for ago in range(1800, -1, -15)]
    name = "headworks_gateway_requests_total"
    series = [
        Series(
            {"__name__": name, "gateway": "gw-1", "priority_class": kind, "tenant": tenant},
            [(at_ms, float(place)) for place, at_ms in enumerate(times_ms)],
        )
        for kind, tenant in (("batch", "acme"), ("chat", "beta"), ("other", "gamma"))
    ]
    store(own_store, series, Owner("gateway", "gw-1"))
    said = effects.tenants_of_classes({"batch", "chat"})
    assert re.fullmatch(r"In the last hour acme and beta sent \d+ requests of these classes\.", said)
    assert effects.tenants_of_classes(["batch"]).endswith(" of this class.")
    assert effects.tenants_of_classes([]) == ""


def test_a_name_is_taken_as_it_is_and_not_as_a_pattern(own_store: Path) -> None:
    sent(own_store, **{"chat-v1.5": {"acme": 30}, "chat-v1x5": {"beta": 30}})
    assert "beta" not in tenants_of(["chat-v1.5"])
    assert "acme" in tenants_of(["chat-v1.5"])


def test_where_nobody_sent_anything_nothing_is_said(own_store: Path) -> None:
    sent(own_store, chat={"acme": 0})
    assert tenants_of(["chat"]) == ""
    assert tenants_of([]) == ""


def test_a_store_that_fails_makes_it_say_that_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: Any, **_options: Any) -> Any:
        raise query.QueryError("the disk is gone")

    monkeypatch.setattr(query, "instant", fails)
    assert "not known" in tenants_of(["chat"])


def test_a_store_that_hangs_holds_no_review_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(query, "instant", lambda *_args, **_options: ended.wait(30) and [])
    monkeypatch.setattr(effects, "WAIT_SECONDS", 0.05)
    try:
        assert "not known" in tenants_of(["chat"])
    finally:
        ended.set()


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True), st.integers(1, 10**9), min_size=1))
def test_however_many_there_are_the_sentence_is_bounded(requests: dict[str, int]) -> None:
    with translation.override("en"):
        text = in_words(requests)
    assert text.startswith("In the last hour ")
    assert f"{sum(requests.values()):,}" in text
    named = text.removeprefix("In the last hour ").split(" sent ")[0].split(" and ")
    assert len(named[0].split(", ")) <= NAMED_MAX
    if len(requests) > NAMED_MAX:
        assert named[1] == f"{len(requests) - NAMED_MAX} more"
