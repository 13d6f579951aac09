"""Engines go by the gateway's order where they can be told it."""

from __future__ import annotations

from typing import get_args

from policy.engine_priority import engine_priority
from wire.snapshot import EngineKind, PriorityClass

CLASSES = {"gold": PriorityClass(rank=1), "bulk": PriorityClass(rank=7)}


def test_vllm_takes_ranks_as_they_are():
    assert [engine_priority("vllm", name, CLASSES) for name in ("gold", "bulk", "", "gone")] == [1, 7, 7, 7]


def test_who_may_refuse_a_priority_or_knows_none_is_told_none():
    others = set(get_args(EngineKind)) - {"vllm"}
    assert {engine_priority(kind, "gold", CLASSES) for kind in others} == {None}


def test_without_classes_there_is_no_order_to_tell():
    assert engine_priority("vllm", "", {}) is None
