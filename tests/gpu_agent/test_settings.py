from __future__ import annotations

from pathlib import Path

import pytest

from gpu_agent import settings
from gpu_agent.nvml.collector import CollectorOptions
from gpu_agent.nvml.xids import XID_RULES, BadXidRules
from wire.settings import BadSetting


@pytest.mark.parametrize("text", ["nvml", "none", "simulated:/run/gpus.json"])
def test_sources_of_gpus(monkeypatch, text):
    monkeypatch.setenv(settings.GPU_SOURCE.name, text)
    assert CollectorOptions.from_settings("gpu-01", Path("state")).nvml.source == text


@pytest.mark.parametrize("text", ["simulated", "simulated:", "nvml:", "cuda", "none:/x"])
def test_other_sources_are_refused_with_what_is_right(text):
    with pytest.raises(BadSetting, match="give nvml, none, or simulated:PATH"):
        settings.GPU_SOURCE.read({settings.GPU_SOURCE.name: text})


def test_without_settings_the_defaults_hold(monkeypatch):
    for row in settings.SETTINGS:
        monkeypatch.delenv(row.name, raising=False)
    options = CollectorOptions.from_settings("gpu-01", Path("state"))
    assert (options.nvml.source, options.nvml.interval_seconds) == ("nvml", 5.0)
    assert (options.kmsg_path, options.rules) == (Path("/dev/kmsg"), XID_RULES)


def test_rules_that_cannot_be_used_keep_the_agent_from_starting(monkeypatch, tmp_path):
    monkeypatch.setenv(settings.XID_RULES_FILE.name, str(tmp_path / "none.json"))
    with pytest.raises(BadXidRules):
        CollectorOptions.from_settings("gpu-01", tmp_path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", None),
        ("none", ()),
        ("vllm:x", ("vllm:x",)),
        ("vllm:lora*, tgi_queue_size", ("vllm:lora*", "tgi_queue_size")),
    ],
)
def test_engines_own_series_are_named_or_none_or_the_useful_ones(text, names):
    assert settings.ENGINE_SERIES.read({settings.ENGINE_SERIES.name: text}) == names


@pytest.mark.parametrize("text", ["*", "a b", "vllm:*x", "none,vllm:x*y", ",", "1x", "x" * 192])
def test_what_is_no_name_of_a_metric_is_refused_with_what_is_right(text):
    with pytest.raises(BadSetting, match="give names of metrics separated by commas"):
        settings.ENGINE_SERIES.read({settings.ENGINE_SERIES.name: text})


@pytest.mark.parametrize(("text", "ports"), [("", ()), ("8000", (8000,)), ("8001, 8000,8001", (8000, 8001))])
def test_ports_to_try_are_each_tried_once(text, ports):
    assert settings.ENGINE_PORTS.read({settings.ENGINE_PORTS.name: text}) == ports


@pytest.mark.parametrize("text", [",", "0", "65536", "-1", "http", "8000-8010", ",".join(map(str, range(1, 66)))])
def test_what_is_no_list_of_ports_is_refused_with_what_is_right(text):
    with pytest.raises(BadSetting, match="give at most 64 ports from 1 to 65535"):
        settings.ENGINE_PORTS.read({settings.ENGINE_PORTS.name: text})
