"""Rules about engines, as pure functions: what agrees, what never goes together, and what nobody told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core import fields as f
from controlplane.core.errors import Refused
from controlplane.fleet.shapes import Rule, RuleForm, Shape, all_hold, holds, judge_shapes

OLD_TRITON = {"kind": "triton", "frontend": "2.61.0"}
PAIR = {"never": {"kind": "triton", "frontend": "<2.62", "vllm": ">=0.11.2"}}


def shape(engine, facts=None, *, pool="chat", of_model=None):
    return Shape(engine, pool, {"kind": "vllm"} if facts is None else facts, of_model or {})


def rule(form, **fields):
    return Rule(fields.pop("name", "r"), f.read(RuleForm, form), fields.pop("reason", "it matters"), **fields)


def judged(form, *shapes, **fields):
    return [
        (finding.state, finding.stops, finding.subjects) for finding in judge_shapes(shapes, [rule(form, **fields)])
    ]


def test_engines_of_one_pool_that_differ_are_named_with_what_they_have():
    found = judge_shapes(
        [shape("a", {"version": "0.11.0"}), shape("b", {"version": "0.12.0"})], [rule({"every": ["version"]})]
    )
    (finding,) = found
    assert (finding.state, finding.stops, finding.subjects) == ("broken", True, ("a", "b"))
    assert finding.message == "pool 'chat': its engines differ in version: 0.11.0 on a; 0.12.0 on b; it matters"


def test_engines_of_two_pools_may_differ():
    shapes = [shape("a", {"version": "1"}), shape("b", {"version": "2"}, pool="next")]
    assert judged({"every": ["version"]}, *shapes) == []


def test_a_version_that_nobody_told_is_neither_fine_nor_broken():
    shapes = [shape("a", {"version": "1"}), shape("b", {})]
    assert judged({"every": ["version"]}, *shapes) == [("unknown", False, ("b",))]
    assert judged({"every": ["version"], "unknown_stops": True}, *shapes) == [("unknown", True, ("b",))]


def test_one_engine_alone_agrees_with_itself():
    assert judged({"every": ["version"]}, shape("a", {})) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({**OLD_TRITON, "vllm": "0.11.2"}, [("broken", True, ("t",))]),
        ({**OLD_TRITON, "vllm": "0.11.2.dev3+g1a2b3c"}, []),
        ({**OLD_TRITON, "vllm": "0.12.0+cu129"}, [("broken", True, ("t",))]),
        ({**OLD_TRITON, "vllm": "0.11.1"}, []),
        ({**OLD_TRITON, "frontend": "2.62.0", "vllm": "0.12.0"}, []),
        ({**OLD_TRITON, "frontend": "2.62.0"}, []),
        (OLD_TRITON, [("unknown", False, ("t",))]),
        ({"kind": "vllm", "vllm": "0.12.0"}, []),
        ({**OLD_TRITON, "vllm": "main"}, [("unknown", False, ("t",))]),
    ],
)
def test_a_known_bad_pair_is_told_by_its_versions(facts, expected):
    assert judged(PAIR, shape("t", facts)) == expected


def test_what_is_needed_of_each_engine_is_asked_of_each():
    shapes = [shape("a", {"max_length": "4096"}), shape("b", {"max_length": "8192"}), shape("c", {})]
    found = judged({"needs": {"max_length": ">=8192"}}, *shapes)
    assert found == [("broken", True, ("a",)), ("unknown", False, ("c",))]


def test_a_rule_is_about_the_engines_that_it_names():
    shapes = [shape("a", {"kind": "triton", "vllm": "1"}), shape("b", {"kind": "vllm", "vllm": "2"})]
    assert judged({"every": ["vllm"], "where": {"kind": "triton"}}, *shapes) == []


def test_an_engine_of_which_nobody_knows_whether_the_rule_is_about_it_is_named():
    assert judged({"never": {"vllm": ">=1"}, "where": {"frontend": "<2.62"}}, shape("a", {"vllm": "2"})) == [
        ("unknown", False, ("a",))
    ]


def test_a_file_that_is_another_than_the_models_is_told_and_a_longer_context_is_none():
    of_model = {"tokenizer": "a" * 64, "max_length": "8192"}
    fits = shape("a", {"tokenizer": "a" * 64, "max_length": "16384"}, of_model=of_model)
    differs = shape("b", {"tokenizer": "b" * 64, "max_length": "4096"}, of_model=of_model)
    silent = shape("c", {}, of_model={"tokenizer": "a" * 64})
    found = judged({"as_model": ["tokenizer", "max_length"]}, fits, differs, silent, stops=False)
    assert found == [("broken", False, ("b",)), ("broken", False, ("b",)), ("unknown", False, ("c",))]


def test_what_stops_is_told_first():
    shapes = [shape("a", {"kind": "x", "version": "1"}), shape("b", {"kind": "y", "version": "2"})]
    rules = [rule({"every": ["kind"]}, name="a", stops=False), rule({"every": ["version"]}, name="b")]
    assert [finding.rule for finding in judge_shapes(shapes, rules)] == ["b", "a"]


FACTS = st.dictionaries(st.sampled_from(["kind", "version", "vllm"]), st.sampled_from(["1", "2", "0.11.2", "main"]))


@given(st.lists(FACTS, min_size=2, max_size=6), st.randoms())
def test_the_verdict_does_not_hang_on_the_order_of_the_engines(found, shuffler):
    shapes = [shape(f"e{number}", facts) for number, facts in enumerate(found)]
    rules = [rule({"every": ["version"]}), rule(PAIR, name="p"), rule({"needs": {"vllm": ">=1"}}, name="n")]
    mixed = shapes[:]
    shuffler.shuffle(mixed)
    assert judge_shapes(mixed, rules) == judge_shapes(shapes, rules)


@given(FACTS, st.dictionaries(st.sampled_from(["kind", "version", "vllm"]), st.sampled_from(["1", ">=1", "<0.12"])))
def test_a_condition_that_does_not_hold_decides_whatever_else_is_unknown(facts, conditions):
    results = {holds(condition, facts.get(name)) for name, condition in conditions.items()}
    verdict = all_hold(conditions, facts)
    assert (verdict is False) == (False in results)
    assert (verdict is True) == (results <= {True})


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ({}, "/"),
        ({"every": ["version"], "never": {"kind": "triton"}}, "/"),
        ({"every": []}, "/every"),
        ({"every": ["Version"]}, "/every/0"),
        ({"never": {"kind": ">= what"}}, "/never/kind"),
        ({"needs": {"kind": ""}}, "/needs/kind"),
        ({"always": ["version"]}, "/always"),
    ],
)
def test_a_rule_that_says_nothing_or_nonsense_is_refused_by_name(form, path):
    with pytest.raises(Refused) as refused:
        f.read(RuleForm, form)
    assert {problem.path for problem in refused.value.problems} == {path}
