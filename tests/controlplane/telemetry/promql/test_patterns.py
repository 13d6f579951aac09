"""Patterns find the groups that other engines find, refuse what RE2 has not, and take no exponential time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.patterns import pattern

_ATOMS = st.sampled_from(["a", "b", "1", ".", r"\d", r"\w", r"\S", "[ab]", "[^a]", "[a-b1]", r"\.", r"\n"])
# Without groups that are repeated, where Python's engine forgets what RE2's remembers.
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{2,}"])),
    ),
    max_leaves=5,
)


@settings(deadline=None)
@given(parts=st.lists(_PATTERNS, min_size=1, max_size=3), value=st.text("ab1.\n", max_size=8))
def test_groups_are_those_of_python(parts, value):
    text = "".join(f"({part})" for part in parts)
    expected = re.fullmatch(text, value, re.DOTALL)
    assert pattern(text).groups(value) == (expected and (value, *expected.groups()))


@settings(deadline=None)
@given(text=st.text(r"ab1\d\w()[]{}*+?|^$.,-:<>P", max_size=12), value=st.text("ab1", max_size=5))
def test_any_text_is_a_pattern_or_is_refused(text, value):
    try:
        compiled = pattern(text)
    except Unanswerable:
        return
    found = compiled.groups(value)
    assert found is None or (found[0] == value and len(found) == len(compiled.names) + 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(?=a)", "looks around"),
        ("(?!a)", "looks around"),
        ("(?<=a)", "looks around"),
        ("(?i)a", "flags"),
        ("(?>a)", "looks around"),
        (r"(a)\1", r"\\1 is not supported"),
        (r"\p{L}", r"\\p is not supported"),
        (r"\Z", r"\\Z is not supported"),
        ("[[:alpha:]]", "alpha"),
        ("a++", "repetition of a repetition"),
        ("a**", "repetition of a repetition"),
        ("a{2}{3}", "repetition of a repetition"),
        ("*a", "repeats nothing"),
        ("a{2,1}", "no number of repetitions"),
        ("a{1001}", "1000 counted"),
        ("(?:a{100}){11}", "1000 counted"),
        ("(?:(?:a{10}b*){10}c*){10}" * 10, "too large"),
        ("(a", "not closed"),
        ("a)", "not opened"),
        ("[a", "not closed"),
        ("[b-a]", "no range"),
        ("a\\", "not supported"),
        ("(?P<n>a)(?P<n>b)", "named n"),
        ("(" * 51 + ")" * 51, "nested deeper"),
        ("a" * 4097, "4096"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text, reason):
    with pytest.raises(Unanswerable, match=reason):
        pattern(text)


@pytest.mark.parametrize("text", ["(a+)+b|a*", "(a|a)*b|a*", "(a*)*b|a*", "(?:a?){30}a{30}|a*", "(.*)(.*)(.*)(.*)b|a*"])
def test_no_pattern_takes_exponential_time(text):
    value = "a" * 200
    found = pattern(text).groups(value)
    assert found is not None
    assert found[0] == value


def test_a_pattern_too_large_for_a_value_is_refused():
    assert pattern("(?:a|b){1000}").groups("ab" * 10) is None
    with pytest.raises(Unanswerable, match="too large for a value of 2000 characters"):
        pattern("(?:a|b){1000}").groups("ab" * 1000)


def test_names_and_what_a_dot_and_a_class_match():
    named = pattern(r"(?P<first>.)(?<second>[^a]*)(c)?")
    assert named.names == ("first", "second", "")
    assert named.groups("\n\n") == ("\n\n", "\n", "\n", "")
    assert pattern(r"\s").groups("\v") is None
    assert pattern(r"\w\d").groups("é١") is None
    assert pattern(r"\x41\x{1F600}\-[\]\\^-]+").groups("A\U0001f600-]\\^-")
