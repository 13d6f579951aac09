from __future__ import annotations

import pytest

from gpu_agent.engines.look import Look
from gpu_agent.engines.numbers import Reading
from gpu_agent.engines.samples import engine_samples
from gpu_agent.samples import Sample
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

ENGINE = NodeEngine("http://127.0.0.1:1", "vllm", "short", "llama")
LABELS = {"engine": "e1", "kind": "vllm", "model": "llama", "pool": "short"}


def test_numbers_carry_the_labels_of_the_nodes_configuration():
    numbers = [Reading("requests_running", (), 3), Reading("ttft_seconds_bucket", ("le", "0.5"), 2)]
    assert engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, numbers)) == [
        Sample("headworks_engine_up", LABELS, 1, 77),
        Sample("headworks_engine_requests_running", LABELS, 3, 77),
        Sample("headworks_engine_ttft_seconds_bucket", {**LABELS, "le": "0.5"}, 2, 77),
    ]


@pytest.mark.parametrize(("hung", "value"), [(True, 1), (False, 0)])
def test_whether_it_hangs_is_said_where_it_can_be_told(hung, value):
    samples = engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, hung=hung))
    assert samples[1:] == [Sample("headworks_engine_hung", LABELS, value, 77)]


def test_an_engine_that_is_down_says_that_alone():
    (up,) = engine_samples("e1", ENGINE, Look(EngineReport("e1", "down"), 77))
    assert (up.name, up.value) == ("headworks_engine_up", 0)


def test_a_label_without_a_value_is_left_out():
    engine = NodeEngine("http://127.0.0.1:1", "vllm", "", "llama")
    (up,) = engine_samples("e1", engine, Look(EngineReport("e1", "up"), 77))
    assert "pool" not in up.labels
