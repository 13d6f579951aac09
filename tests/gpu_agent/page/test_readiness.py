from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpu_agent.page.readiness import SPOT_NOTICE, engine_reasons, node_reasons
from wire.messages import EngineReport, GpuReport
from wire.snapshot import NodeEngine, NodeSnapshot, NodeState

DOCS = Path(__file__).resolve().parents[3] / "docs" / "readiness.md"
ENGINE = NodeEngine("http://127.0.0.1:8000", "vllm", "short", "llama")
KNOWN = NodeSnapshot(1, NodeState("node-1"), {"e1": ENGINE})
CORDONED = msgspec.structs.replace(KNOWN, node=NodeState("node-1", cordoned=True))
UP = EngineReport("e1", "up")


def gpus(*states):
    return [GpuReport(f"GPU-{index}", index, "H200", state=state) for index, state in enumerate(states)]


@pytest.mark.parametrize(
    ("known", "states", "reasons"),
    [
        (KNOWN, (), []),
        (KNOWN, ("ok", "lost"), []),
        (KNOWN, ("lost", "unresponsive", "error"), ["gpus_lost"]),
        (CORDONED, ("ok",), ["node_cordoned"]),
        (CORDONED, ("lost",), ["node_cordoned", "gpus_lost"]),
        (None, ("ok",), ["not_configured"]),
    ],
)
def test_a_node(known, states, reasons):
    assert node_reasons(known, gpus(*states)) == reasons


@pytest.mark.parametrize(
    ("seen", "reasons"),
    [
        (UP, []),
        (None, ["engine_not_seen"]),
        (EngineReport("e1", "down", condition="dead"), ["engine_down"]),
        (EngineReport("e1", "down", condition="unreachable"), ["engine_down"]),
        (EngineReport("e1", "starting"), ["engine_starting"]),
        *((EngineReport("e1", "up", condition=each), [f"engine_{each}"]) for each in ("hung", "paused", "sleeping")),
    ],
)
def test_an_engine_by_what_was_seen_of_it(seen, reasons):
    assert engine_reasons(KNOWN, "e1", seen) == reasons


def test_an_engine_is_not_ready_while_it_or_its_node_is_cordoned():
    alone = msgspec.structs.replace(KNOWN, engines={"e1": msgspec.structs.replace(ENGINE, cordoned=True), "e2": ENGINE})
    assert engine_reasons(alone, "e1", UP) == ["engine_cordoned"]
    assert engine_reasons(alone, "e2", UP) == []
    assert engine_reasons(CORDONED, "e1", UP) == ["node_cordoned"]
    both = msgspec.structs.replace(CORDONED, engines=alone.engines)
    down = EngineReport("e1", "down")
    assert engine_reasons(both, "e1", down) == ["node_cordoned", "engine_down"], "each cause once"


def test_every_reason_is_documented():
    page = DOCS.read_text()
    conditions = [EngineReport("e1", "up", condition=each) for each in ("ok", "hung", "paused", "sleeping")]
    looks = [*conditions, EngineReport("e1", "down"), EngineReport("e1", "starting"), None]
    alone = msgspec.structs.replace(KNOWN, engines={"e1": msgspec.structs.replace(ENGINE, cordoned=True)})
    given = {
        reason
        for known in (None, KNOWN, CORDONED, alone)
        for name in ("e1", "e9")
        for seen in looks
        for reason in [*engine_reasons(known, name, seen), *node_reasons(known, gpus("lost"))]
    }
    given |= {SPOT_NOTICE, *engine_reasons(KNOWN, "e1", UP, leaving=True)}
    assert len(given) == 13
    assert {reason for reason in given if f"`{reason}`" not in page} == set()


def test_what_is_not_known_is_not_ready():
    assert engine_reasons(None, "e1", UP) == ["not_configured"]
    assert engine_reasons(KNOWN, "e9", None) == ["engine_unknown"]
