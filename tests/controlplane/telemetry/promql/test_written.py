"""PromQL that the program writes: names of any characters stand for themselves alone."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.promql.written import one_of
from dashboards.charts.rows import matchers_of

_CHARACTERS = st.characters(exclude_categories=("Cs", "Cc"))
NAMES = st.lists(st.text(_CHARACTERS, min_size=1, max_size=12), min_size=1, max_size=5, unique=True)


@given(NAMES)
def test_one_of_some_names_is_each_of_them_and_nothing_else(names: list[str]) -> None:
    [matcher] = parse(f"up{{node=~{one_of(names)}}}").matchers.matchers  # type: ignore[attr-defined]
    assert all(re.fullmatch(matcher.value, name) for name in names)
    assert not re.fullmatch(matcher.value, "".join(names) + "x")


def test_names_are_written_in_one_order_and_as_themselves() -> None:
    assert one_of({"b.1", "a", "ığüş"}) == r'"a|b\\.1|ığüş"'
    assert matchers_of([("pool", 'a"b'), ("node", ("n-2", "n.1"))]) == r'pool="a\"b",node=~"n\\-2|n\\.1"'
