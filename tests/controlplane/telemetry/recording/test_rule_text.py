from __future__ import annotations

import re
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.errors import Malformed, TooLarge
from controlplane.telemetry.recording.rule_text import MAX_BYTES, read_rules, write_rules

texts = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp"]) | st.sampled_from("\n :#'\"{}[]|>-"), min_size=1, max_size=30
)
rules = st.fixed_dictionaries(
    {"record": texts, "expr": texts}, optional={"labels": st.dictionaries(texts, texts, min_size=1, max_size=3)}
)
documents = st.fixed_dictionaries(
    {"groups": st.lists(st.fixed_dictionaries({"name": texts, "rules": st.lists(rules)}))}
)


@given(documents)
def test_what_is_written_is_read_as_the_same(document):
    assert read_rules(write_rules(document).encode()) == document


def test_an_expression_of_several_lines_stays_so():
    assert "expr: |-\n  sum by (pool) (\n    up)\n" in write_rules({"expr": "sum by (pool) (\n  up)"})


def test_a_rule_file_of_prometheus_is_read_with_every_scalar_as_text():
    text = b"""
# fleet
groups:
  - name: a
    interval: 30s
    rules:
      - record: pool:up:sum
        expr: |
          sum by (pool) (
            up{job="engine"})
        labels: {tier: 1, on: yes}
"""
    (group,) = read_rules(text)["groups"]
    assert group["rules"] == [
        {
            "record": "pool:up:sum",
            "expr": 'sum by (pool) (\n  up{job="engine"})\n',
            "labels": {"tier": "1", "on": "yes"},
        }
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"groups: [", "no YAML at line"),
        (b"a: 1\na: 2", "'a' twice in one map at line 2"),
        (b"a: &x [1]\nb: *x", "an alias at line 2"),
        (b"? [1]\n: 2", "a key that is no text"),
        (b"[" * 20, "nested too deep"),
        (b"[" * 100_000, "nest"),
        (b"a: 1\n---\nb: 2", "give one document; the body has 2"),
        (b"", "give one document; the body has 0"),
        (b"a: \xff", "byte 3"),
        (b"a: \x00", "no YAML"),
    ],
)
def test_what_is_no_plain_document_is_refused_with_its_place(text, says):
    with pytest.raises(Malformed, match=re.escape(says)):
        read_rules(text)


def test_a_tag_makes_no_object():
    text = b"a: !!python/object/apply:os.system ['false']"
    assert read_rules(text) == {"a": ["false"]}
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(text)


def test_a_larger_text_is_refused_unread():
    with pytest.raises(TooLarge, match=str(MAX_BYTES)):
        read_rules(b"#" * (MAX_BYTES + 1))


@given(st.binary(max_size=200) | st.text("ab:-[]{}&*!|>?#%'\"\n ,0", max_size=60).map(str.encode))
def test_whatever_comes_is_read_or_refused(text):
    with suppress(Malformed):
        read_rules(text)
