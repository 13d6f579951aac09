"""Configurations and targets for the tests of their distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.heads import Heads
from controlplane.configs.hub import heads
from controlplane.configs.publisher import publish
from controlplane.core.models import Target
from controlplane.core.tokens import new_token, token_hash
from controlplane.telemetry import query
from tests.controlplane.configs.live import Live, live_site
from tests.controlplane.configs.staging import acknowledge
from tests.controlplane.conftest import Rest


@pytest.fixture
def newest(db: None) -> Callable[[], Heads]:
    """Publish what waits, as the hub does; the heads with the newest revision read."""

    def make() -> Heads:
        publish()
        heads.refresh()
        return heads

    return make


@pytest.fixture
def target_of(db: None) -> Callable[..., Any]:
    """An enrolled target's script; `row` is its row."""

    def make(kind: str = "gateway", name: str = "gw-1") -> Rest:
        token = new_token("hwg")
        now = timezone.now()
        row = Target.objects.create(
            kind=kind,
            name=name,
            version="test",
            protocol=1,
            token_hash=token_hash(token),
            token_expires_at=now + timedelta(days=1),
            last_seen_at=now,
        )
        rest = Rest(token)
        rest.row = row  # type: ignore[attr-defined]
        return rest

    return make


MODEL = {"name": "org/m-1", "max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 2048}

ENGINE = {"name": "e-1", "url": "http://10.0.0.1:8000", "pool": "short", "served_model": "m", "node": "n-1"}


@pytest.fixture
def fleet(admin: Rest) -> Rest:
    """A model, a pool with one engine, a route to it, a tenant that may use it."""
    for path, body in (
        ("/models", MODEL),
        ("/pools", {"name": "short", "model": "org/m-1"}),
        ("/nodes", {"name": "n-1"}),
        ("/engines", ENGINE),
        ("/routes", {"name": "all", "pools": {"short": 1000}}),
        ("/tenants", {"name": "acme", "tpm_limit": 60_000, "models": ["org/m-1"]}),
    ):
        answer = admin.post(path, body)
        assert answer.status_code == 201, answer.content
    return admin


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A real web process, shared by the tests of one file."""
    directory: Path = tmp_path_factory.mktemp("live")
    with live_site(directory) as site:
        yield site


@pytest.fixture
def gateways(target_of: Any, fleet: Rest, newest: Callable[[], Heads]) -> Any:
    made = [target_of("gateway", name) for name in ("gw-1", "gw-2")]
    for gateway in made:
        acknowledge(gateway, newest())
    return made


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the query of a look answers: a value, None for no series, or an error. The last stays."""
    answers: list[Any] = [1.0]

    def instant(promql: str, at_ms: int) -> list[query.Sample]:
        answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [] if answer is None else [query.Sample({}, at_ms, answer)]

    monkeypatch.setattr(query, "instant", instant)
    return answers
