from __future__ import annotations

import pytest

from gpu_agent.engines.look import Look
from gpu_agent.engines.own_series import OwnSeries
from gpu_agent.engines.probe import Outcome
from gpu_agent.engines.samples import engine_samples
from gpu_agent.samples import Sample
from wire.engine_pages.numbers import Reading
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

ENGINE = NodeEngine("http://127.0.0.1:1", "vllm", "short", "llama")
LABELS = {"engine": "e1", "kind": "vllm", "model": "llama", "pool": "short"}


def watched(condition="ok", restarts=0):
    """What every look says."""
    return [
        Sample("headworks_engine_condition", {**LABELS, "condition": condition}, 1, 77),
        Sample("headworks_engine_restarts_total", LABELS, restarts, 77),
    ]


def test_numbers_carry_the_labels_of_the_nodes_configuration():
    numbers = [Reading("requests_running", (), 3), Reading("ttft_seconds_bucket", ("le", "0.5"), 2)]
    assert engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, numbers)) == [
        Sample("headworks_engine_up", LABELS, 1, 77),
        *watched(),
        Sample("headworks_engine_requests_running", LABELS, 3, 77),
        Sample("headworks_engine_ttft_seconds_bucket", {**LABELS, "le": "0.5"}, 2, 77),
    ]


@pytest.mark.parametrize(("hung", "value"), [(True, 1), (False, 0)])
def test_whether_it_hangs_is_said_where_it_can_be_told(hung, value):
    samples = engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, hung=hung))
    assert samples[1:] == [Sample("headworks_engine_hung", LABELS, value, 77), *watched()]


def test_an_engine_that_is_down_says_that_alone():
    look = Look(EngineReport("e1", "down", condition="dead"), 77, restarts=2)
    assert engine_samples("e1", ENGINE, look) == [Sample("headworks_engine_up", LABELS, 0, 77), *watched("dead", 2)]


def test_a_probe_says_whether_it_held_and_a_canary_how_long_it_took():
    probes = {"canary": Outcome("", 0.25), "json_schema": Outcome("wrong_type: a string", 0.5)}
    samples = engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, probes=probes))
    assert samples[3:] == [
        Sample("headworks_engine_probe_ok", {**LABELS, "probe": "canary"}, 1, 77),
        Sample("headworks_engine_probe_ok", {**LABELS, "probe": "json_schema"}, 0, 77),
        Sample("headworks_engine_canary_seconds", LABELS, 0.25, 77),
    ]


def test_a_canary_that_failed_took_no_time_worth_telling():
    probes = {"canary": Outcome("no_answer: in time", 30)}
    samples = engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, probes=probes))
    assert samples[3:] == [Sample("headworks_engine_probe_ok", {**LABELS, "probe": "canary"}, 0, 77)]


def test_a_label_without_a_value_is_left_out():
    engine = NodeEngine("http://127.0.0.1:1", "vllm", "", "llama")
    samples = engine_samples("e1", engine, Look(EngineReport("e1", "up"), 77))
    assert not any("pool" in sample.labels for sample in samples)


def test_ranks_have_series_of_their_own_beside_their_servers():
    ranks = {"1": [Reading("requests_running", (), 2), Reading("inter_token_latency_seconds_count", (), 9)]}
    samples = engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, ranks=ranks))
    assert samples[3:] == [Sample("headworks_engine_rank_requests_running", {**LABELS, "rank": "1"}, 2, 77)]


def test_an_engines_own_series_keep_their_names_and_gain_the_labels_of_the_node():
    own = [OwnSeries("vllm:prompt_tokens_by_source_total", {"rank": "0", "source": "local_compute"}, 54)]
    samples = engine_samples("e1", ENGINE, Look(EngineReport("e1", "up"), 77, own=own))
    labels = {**LABELS, "rank": "0", "source": "local_compute"}
    assert samples[3:] == [Sample("vllm:prompt_tokens_by_source_total", labels, 54, 77)]
