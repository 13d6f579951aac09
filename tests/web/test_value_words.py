"""Values that are stored as codes stand in diffs as words, in the reader's language."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils.translation import override

from controlplane.batches.models import Status
from controlplane.configs.models import StageState
from controlplane.core.changes import Change
from controlplane.remediation.causes import ACTION_NAMES
from controlplane.web.differences import of_changes
from controlplane.web.labels import action_label, cause_label
from controlplane.web.shown.spoken import spoken
from controlplane.web.templatetags.diffs import side
from controlplane.web.value_words import _ROWS, in_words


@pytest.mark.parametrize(
    ("noun", "place", "stored", "english", "turkish"),
    [
        ("stage", ("state",), "taken_back", "taken back", "geri alındı"),
        ("batch", ("status",), "in_progress", "in progress", "sürüyor"),
        ("lever", ("state",), "offered_back", "offered back", "geri alınması önerildi"),
        ("act", ("action",), "check_model", "Check a model's files", "Bir modelin dosyalarını denetle"),
        ("pool", ("stale_telemetry",), "hold", "hold last", "son değeri koru"),
        ("pool", ("work",), "short", "short", "kısa"),
        ("rollout", ("kind",), "red_black", "red-black", "kırmızı-siyah"),
        ("maintenance window", ("days",), "sat, sun", "Saturday, Sunday", "Cumartesi, Pazar"),
        ("tenant", ("schedule", "nights", "days"), "mon", "Monday", "Pazartesi"),
        ("node", ("gpu_source",), "nvml", "NVML", "NVML"),
        ("remediation", ("action",), "restart_engines", "Restart the engines", "Motorları yeniden başlat"),
        ("remediation policy", ("actions", "xid 79"), "support", "Ask the vendor", "Üreticiye danış"),
        ("remediation", ("cause",), "xid 79", "XID 79", "XID 79"),
        # Of a later version, of another noun, and within what people name.
        ("stage", ("state",), "found_later", "found_later", "found_later"),
        ("tenant", ("weight",), "2", "2", "2"),
        ("tenant", ("schedule", "state", "state"), "held", "held", "held"),
    ],
)
def test_a_code_is_a_word(noun: str, place: tuple[str, ...], stored: str, english: str, turkish: str) -> None:
    assert side(stored, place, noun) == english
    with override("tr"):
        assert side(stored, place, noun) == turkish


def test_a_detector_is_its_title() -> None:
    assert in_words(("detector",), "lever policy", "kv_exhausted") != "kv_exhausted"
    assert in_words(("detector",), "lever policy", "of_later") == "of_later"


def test_whatever_a_fault_asks_for_has_a_name() -> None:
    with override("tr"):
        assert [action for action in ACTION_NAMES if action_label(action) in (action, "")] == []


def test_a_repair_says_its_cause_as_its_maker_does() -> None:
    with override("tr"):
        assert "XID 79" in spoken("the fault came back: xid 79")


@pytest.mark.parametrize("said", ["would reset gpu", "would reset_gpu"])
def test_a_repair_says_what_it_would_do_in_words(said: str) -> None:
    with override("tr"):
        assert action_label("reset_gpu") in spoken(f"{said}; the policy observes only")


@pytest.mark.parametrize(
    ("noun", "field", "codes"), [("stage", "state", StageState.values), ("batch", "status", Status.values)]
)
def test_every_state_without_a_label_of_its_own_has_a_look(noun: str, field: str, codes: list[str]) -> None:
    with override("tr"):
        assert [code for code in codes if in_words((field,), noun, code) == code] == []


def test_no_choice_of_a_row_is_left_as_a_code_with_underscores() -> None:
    fields = [(noun, field) for noun, row in _ROWS.items() for field in row._meta.get_fields()]
    codes = [
        (noun, field.name, str(code))
        for noun, field in fields
        for code, _label in getattr(field, "flatchoices", None) or ()
        if "_" in str(code)
    ]
    assert len(codes) > 5
    assert [each for each in codes if "_" in in_words((each[1],), each[0], each[2])] == []


@pytest.mark.parametrize(
    ("noun", "key", "form", "shown"),
    [
        ("remediation policy", "remediation-policy", {"mode": "act"}, ""),
        ("cordon policy", "cordon-policy", {"enabled": True}, ""),
        ("act", "a1", {"action": "check_model", "node": "rack-1"}, "Check a model's files rack-1"),
        ("delivery", "ce6a6b6b-0", {"receiver": "oncall", "title": "GPU lost"}, "oncall: GPU lost"),
        ("delivery", "ce6a6b6b-0", {"state": "waiting"}, "ce6a6b6b"),
    ],
)
def test_what_a_heading_calls_an_object(noun: str, key: str, form: dict[str, Any], shown: str) -> None:
    (told,) = of_changes([Change(noun, key, None, form)])
    assert told.key == shown


def test_a_cause_with_a_number_is_written_as_by_its_maker() -> None:
    assert [cause_label(each) for each in ("xid 79", "sxid 12028", "GpuLost", "")] == [
        "XID 79",
        "SXid 12028",
        "GpuLost",
        "",
    ]
