from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from gpu_agent.policy import BadPolicy, EnginePolicy, NodePolicy, load_policy
from wire.acts import ACTIONS
from wire.messages import MAX_ENGINES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def written(tmp_path, content):
    file = tmp_path / "policy.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def test_without_a_file_nothing_is_allowed():
    policy = load_policy("")
    assert policy == NodePolicy()
    assert policy.allowed_acts == {}
    assert policy.engine("e1").allow == []


def test_the_documented_example_is_a_policy_that_names_every_field(tmp_path):
    page = (DOCS / "node-policy.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.S)
    policy = load_policy(written(tmp_path, example))
    node_acts = {name for name, action in ACTIONS.items() if not action.kinds}
    assert set(policy.allowed_acts[""]) == node_acts
    fields = {field.name for field in msgspec.structs.fields(EnginePolicy)}
    assert set().union(*json.loads(example)["engines"].values()) == fields
    assert all(f"`{field}`" in page for field in fields)
    assert all(f"`{action}`" in page for action in ACTIONS)


def test_who_may_do_nothing_is_not_among_what_is_allowed(tmp_path):
    engines = {"e1": {"allow": ["wake"]}, "e2": {"model_path": "/models/llama"}}
    assert load_policy(written(tmp_path, {"engines": engines})).allowed_acts == {"e1": ["wake"]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "Input data was truncated"),
        ({"alow": []}, "/alow: no such field"),
        ({"engines": {"e1": {"alow": []}}}, "/engines/e1/alow: no such field"),
        ({"allow": ["sleep"]}, "/allow: 'sleep' is none of check_model, fetch_model, reboot, release_gpus, reset_gpu,"),
        ({"allow": ["reset_gpu"]}, "/allow: reset_gpu is allowed and needs a reset_command"),
        ({"allow": ["reset_gpu"], "reset_command": ["reset-all"]}, "/reset_command: it resets whatever it likes"),
        ({"allow": ["reboot"]}, "/allow: reboot is allowed and needs a reboot_command"),
        ({"allow": ["fetch_model"], "model_folders": ["/m"]}, "/allow: fetch_model is allowed and needs a fetch_comm"),
        ({"allow": ["check_model"]}, "/allow: check_model is allowed and needs model_folders"),
        ({"model_folders": ["models"]}, "matching regex"),
        (
            {"engines": {"e1": {"allow": ["release_gpus"]}}},
            "/engines/e1/allow: 'release_gpus' is none of drain, load_lora",
        ),
        ({"engines": {"e1": {"allow": ["restart"]}}}, "/engines/e1: restart is allowed and needs a restart_command"),
        ({"engines": {"e1": {"allow": ["start"]}}}, "/engines/e1: start is allowed and needs a start_command"),
        ({"engines": {"e1": {"allow": ["stop"]}}}, "/engines/e1: stop is allowed and needs a stop_command"),
        ({"engines": {"e1": {"restart_command": "systemctl restart x"}}}, "/e1/restart_command: Expected `array`"),
        ({"engines": {"e1": {"restart_command": ["x"] * 65}}}, "length <= 64"),
        ({"engines": {"e1": {"restart_command": ["x\0y"]}}}, "matching regex"),
        (
            {"engines": {"e1": {"url": "http://key@engine:8000"}}},
            "/engines/e1/url: must be http(s)://host[:port] without",
        ),
        (
            {"engines": {"e1": {"url": "http://engine:8000/v1"}}},
            "/engines/e1/url: must be http(s)://host[:port] without",
        ),
        ({"engines": {"e1": {"arguments": ["seed"]}}}, "/engines/e1/arguments: they are changed in a config_file"),
        ({"engines": {"e1": {"config_file": "/etc/vllm.json"}}}, "/engines/e1/config_file: vLLM reads a .yaml or .yml"),
        ({"engines": {"e1": {"config_file": "vllm.yaml"}}}, "matching regex"),
        (
            {"engines": {"e1": {"config_file": "/v.yaml", "arguments": ["seed", "api-key"]}}},
            "/engines/e1/arguments: api-key is a secret",
        ),
        ({"engines": {"e1": {"allow": ["load_lora"]}}}, "load_lora is allowed and needs a lora_folder"),
        ({"engines": {"E 1": {}}}, "matching regex"),
        ({"engines": {f"e{number}": {} for number in range(MAX_ENGINES + 1)}}, f"length <= {MAX_ENGINES}"),
    ],
)
def test_a_policy_that_cannot_hold_is_refused_with_the_place(tmp_path, content, why):
    file = written(tmp_path, content)
    with pytest.raises(BadPolicy, match=re.escape(why)) as refused:
        load_policy(file)
    assert file in str(refused.value)


def test_a_file_that_is_not_there_or_too_long_is_refused(tmp_path):
    with pytest.raises(BadPolicy, match="No such file"):
        load_policy(str(tmp_path / "absent.json"))
    with pytest.raises(BadPolicy, match="longer than"):
        load_policy(written(tmp_path, " " * (2 << 20)))
