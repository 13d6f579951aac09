"""Matchers: what is read, what is refused, and what matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.pipeline.matchers import BadMatcher, Matcher, all_match, matcher, read

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "label", "operator", "value"),
    [
        ('severity="critical"', "severity", "=", "critical"),
        ('  pool =~ "chat-.*" ', "pool", "=~", "chat-.*"),
        ('pool!~"chat|code"', "pool", "!~", "chat|code"),
        ('tenant!=""', "tenant", "!=", ""),
        ("severity=critical", "severity", "=", "critical"),
        ("tenant=", "tenant", "=", ""),
        (r'path="a\"b\\c\n"', "path", "=", 'a"b\\c\n'),
        # As Alertmanager reads it, what is no escape stays.
        (r'node=~"gpu-\d+"', "node", "=~", r"gpu-\d+"),
    ],
)
def test_it_reads_what_alertmanager_reads(text: str, label: str, operator: str, value: str) -> None:
    found = matcher(text)
    assert (found.label, found.operator, found.value) == (label, operator, value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "severity",
        "=critical",
        '0a="b"',
        'a="b',
        'a="b" c',
        "a=b c",
        'a=~"("',
        'a=~"(?=x)"',
        'a="b"c"',
        "a=" + "b" * 1001,
    ],
)
def test_it_refuses_what_it_cannot_read_and_says_what_would_be_right(text: str) -> None:
    with pytest.raises(BadMatcher, match=r"give label=|quote it|cannot be used|characters"):
        matcher(text)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ('pool="chat"', {"pool": "chat"}, True),
        ('pool="chat"', {}, False),
        ('pool=""', {}, True),
        ('pool!="chat"', {}, True),
        ('pool!=""', {}, False),
        # Whole values, by RE2; a dot is a line end, too.
        ('pool=~"cha"', {"pool": "chat"}, False),
        ('pool=~"cha."', {"pool": "chat"}, True),
        ('pool=~"a|b"', {"pool": "bb"}, False),
        ('pool=~"a.b"', {"pool": "a\nb"}, True),
        ('pool!~"chat.*"', {"pool": "chat-long"}, False),
        ('pool!~"chat.*"', {}, True),
    ],
)
def test_a_missing_label_is_an_empty_one_and_a_pattern_is_of_the_whole_value(
    text: str, labels: dict[str, str], matches: bool
) -> None:
    assert matcher(text).matches(labels) is matches


def test_all_must_match() -> None:
    matchers = read(['a="1"', 'b="2"'])
    assert all_match(matchers, {"a": "1", "b": "2"})
    assert not all_match(matchers, {"a": "1"})
    assert all_match([], {})


@given(TEXTS)
def test_what_is_written_is_read_again(value: str) -> None:
    written = Matcher("a", "=", value)
    assert matcher(str(written)) == written
