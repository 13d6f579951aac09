"""Patterns find the groups that other engines find, refuse what RE2 has not, and take no exponential time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.telemetry.patterns import BadPattern, pattern

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
    except BadPattern:
        return
    found = compiled.groups(value)
    assert found is None or (found[0] == value and len(found) == len(compiled.names) + 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(?=a)", "invalid perl operator"),
        ("(?!a)", "invalid perl operator"),
        ("(?<=a)", r"invalid (perl operator|named capture)"),
        ("(?>a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\Z", "invalid escape sequence"),
        (r"\C", "is not supported"),
        (r"\\\C", "is not supported"),
        ("a++", "bad repetition operator"),
        ("a**", "bad repetition operator"),
        ("a{2}{3}", "bad repetition operator"),
        ("*a", "no argument for repetition operator"),
        ("a{2,1}", "invalid repetition size"),
        ("a{1001}", "invalid repetition size"),
        ("(?:a{100}){11}", "invalid repetition size"),
        (r"(\pL{500}|\PL{400}){2}" * 40, "too large"),
        ("(a", r"missing \)"),
        ("a)", r"unexpected \)"),
        ("[a", "missing ]"),
        ("[b-a]", "invalid character class range"),
        ("a\\", "cannot be used"),
        ("(?P<n>a)(?<n>b)", "two groups are named n"),
        ("(" * 501 + ")" * 501, "nested 500 deep"),
        ("a" * 16_385, "16384"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text, reason):
    with pytest.raises(BadPattern, match=reason):
        pattern(text)


def test_one_of_the_names_of_a_large_fleet_is_matched():
    names = [f"gpu-node-{number:03}.rack-7.site-3" for number in range(400)]
    one_of = pattern("|".join(map(re.escape, names)))
    assert one_of.matches(names[-1])
    assert not one_of.matches("gpu-node-400.rack-7.site-3")


@pytest.mark.parametrize("text", ["(a+)+b|a*", "(a|a)*b|a*", "(a*)*b|a*", "(?:a?){30}a{30}|a*", "(.*)(.*)(.*)(.*)b|a*"])
def test_no_pattern_takes_exponential_time(text):
    value = "a" * 200
    found = pattern(text).groups(value)
    assert found is not None
    assert found[0] == value


def test_a_long_value_takes_time_in_proportion():
    found = pattern("((?:a|b){1000})*").groups("ab" * 5000)
    assert found is not None
    assert found[1] == "ab" * 500


def test_flags_classes_of_unicode_and_a_backslash_before_a_letter_are_read():
    assert pattern("(?i)ab").groups("aB") == ("aB",)
    assert pattern(r"\p{Lu}[[:digit:]]").groups("Ä1") == ("Ä1",)
    assert pattern(r"\\C").groups("\\C") == ("\\C",)


def test_names_and_what_a_dot_and_a_class_match():
    named = pattern(r"(?P<first>.)(?<second>[^a]*)(c)?")
    assert named.names == ("first", "second", "")
    assert named.groups("\n\n") == ("\n\n", "\n", "\n", "")
    assert pattern(r"\s").groups("\v") is None
    assert pattern(r"\w\d").groups("é١") is None
    assert pattern(r"\x41\x{1F600}\-[\]\\^-]+").groups("A\U0001f600-]\\^-")
