from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.acts import ACTIONS, ActRefused, Drain, Restart, Sleep, read_act
from wire.snapshot import Act, NodeSnapshot
from wire.snapshot_checks import decode_snapshot

KINDS = ("vllm", "sglang", "tgi", "llamacpp", "trtllm", "triton", "ollama")


def act(action, *, engine="e1", **arguments):
    about = {} if engine is None else {"engine": engine}
    return Act(action, 1, 0, 1, arguments=arguments, **about)


def refused(given_act, kind="vllm"):
    with pytest.raises(ActRefused) as refusal:
        read_act(given_act, kind)
    return [(problem.path, problem.rule) for problem in refusal.value.problems]


def test_arguments_are_read_with_their_defaults():
    assert read_act(act("sleep"), "vllm") == Sleep(level=1)
    assert read_act(act("drain", limit_seconds=5), "sglang") == Drain(limit_seconds=5)
    arguments: dict[str, str | int | bool] = {"max-num-seqs": 8, "kv-cache-dtype": "fp8", "enforce-eager": True}
    assert read_act(act("restart", arguments=arguments), "vllm") == Restart(arguments)


def test_every_reason_names_its_place():
    assert refused(act("explode")) == [("/action", "unknown_action")]
    assert refused(act("sleep", engine=None), None) == [("/engine", "wrong_subject")]
    assert refused(act("release_gpus")) == [("/engine", "wrong_subject")]
    assert refused(act("load_model", model="m")) == [("/engine", "wrong_kind")]
    assert refused(act("sleep", level=3)) == [("/arguments/level", "type")]
    assert refused(act("load_lora", adapter="a", path="relative")) == [("/arguments/path", "type")]


def test_an_argument_beyond_its_few_values_is_refused_with_those():
    with pytest.raises(ActRefused, match=r"^Invalid enum value 3; give one of 1, 2$"):
        read_act(act("sleep", level=3), "vllm")


@pytest.mark.parametrize("value", ["a\nb", "a\x85b", "a\u2028b", "x" * 1001, 2**53, {"a": 1}])
def test_a_value_that_a_configuration_file_could_not_hold_is_refused(value):
    assert refused(act("restart", arguments={"seed": value}))


@pytest.mark.parametrize("name", ["--seed", "Seed", "max_num_seqs", "seed: 1\nx", ""])
def test_the_name_of_an_argument_is_as_the_command_line_has_it(name):
    assert refused(act("restart", arguments={name: 1}))


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_an_action_is_refused_for_every_kind_that_it_is_not_for(name):
    kinds = ACTIONS[name].kinds
    for kind in set(KINDS) - kinds:
        if kinds:
            assert refused(act(name), kind) == [("/engine", "wrong_kind")]


@given(st.text(max_size=20), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3))
def test_whatever_is_asked_for_is_read_or_refused_with_a_place(action, arguments):
    given_act = Act(action, 1, 0, 1, engine="e1", arguments=arguments)
    problems = []
    try:
        assert type(read_act(given_act, "vllm")) is ACTIONS[action]
    except ActRefused as refusal:
        problems = refusal.problems
    assert all(problem.path and problem.rule and problem.message for problem in problems)


def test_an_act_of_a_later_version_keeps_no_slice_from_being_applied():
    later = {"action": "defragment", "order": 1, "issued_at_ms": 1, "expires_at_ms": 2, "arguments": {"depth": 3}}
    content = {"kind": "node", "schema": 1, "node": {"name": "node-1"}, "acts": {"ab" * 16: {**later, "more": "x"}}}
    snapshot = decode_snapshot(content)
    assert isinstance(snapshot, NodeSnapshot)
    assert snapshot.acts["ab" * 16].action == "defragment"
