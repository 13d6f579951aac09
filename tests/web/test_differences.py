"""A diff that a person reads says all that a patch does, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.changes import Change
from controlplane.web.differences import Difference, digest, of_changes, of_patch
from wire.canonical import diff_patch, merge_patch

_names = st.sampled_from(["a", "b", "c"])
_values: st.SearchStrategy[Any] = st.one_of(st.integers(0, 3), st.booleans(), st.sampled_from(["x", "y"]))
# As in the configuration: a name holds either a map or a value, at a fixed depth.
_entries = st.dictionaries(_names, _values, max_size=3)
_documents = st.dictionaries(_names, st.dictionaries(_names, _entries, max_size=3), max_size=3)


def _flat(document: Any, path: str = "") -> dict[str, str]:
    """Every leaf as JSON text, in which false and 0 differ."""
    if isinstance(document, dict) and (document or not path):
        parts = [_flat(item, f"{path} › {key}" if path else key) for key, item in document.items()]
        return {name: item for part in parts for name, item in part.items()}
    return {path: json.dumps(document)}


@given(_documents, _documents)
def test_every_value_that_differs_has_one_line_and_no_other_has(before: dict[str, Any], after: dict[str, Any]) -> None:
    lines = of_patch(diff_patch(before, after), diff_patch(after, before))
    old, new = _flat(before), _flat(after)
    assert merge_patch(before, diff_patch(before, after)) == after
    leaves = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    # A map that only gains or loses entries changes from or to an empty one: its entries say so.
    told = {line.path for line in lines}
    assert {path for path in leaves if "{}" not in (old.get(path), new.get(path))} <= told
    assert told <= leaves
    assert len(told) == len(lines)


def test_a_changed_value_shows_both_sides() -> None:
    lines = of_patch({"tenants": {"acme": {"tpm_limit": 5}}}, {"tenants": {"acme": {"tpm_limit": 9}}})
    assert lines == [Difference("tenants › acme › tpm_limit", "9", "5")]


def test_a_new_entry_is_spelt_out_and_a_removed_one_too() -> None:
    entry = {"weight": 2, "blocked": False}
    added = of_patch({"tenants": {"new": entry}}, {"tenants": {"new": None}})
    removed = of_patch({"tenants": {"new": None}}, {"tenants": {"new": entry}})
    assert [(line.path, line.before, line.after) for line in added] == [
        ("tenants › new › blocked", None, "false"),
        ("tenants › new › weight", None, "2"),
    ]
    assert [(line.path, line.after, line.before) for line in added] == [
        (line.path, line.before, line.after) for line in removed
    ]


def test_a_changed_row_names_the_row_and_the_field_and_leaves_out_what_is_unset() -> None:
    made = Change("tenant", "acme", None, {"name": "acme", "weight": 1, "tpm_limit": None, "models": ["m/a", "m/b"]})
    assert of_changes([made]) == [
        Difference("tenant acme", None, "acme"),
        Difference("tenant acme › models", None, "m/a, m/b"),
        Difference("tenant acme › weight", None, "1"),
    ]


def test_the_digest_names_the_values_that_are_replaced() -> None:
    seen = Change("tenant", "acme", {"tpm_limit": 1, "seen_at": "now"}, {"tpm_limit": 2, "seen_at": "now"})
    written_by_another = Change("tenant", "acme", {"tpm_limit": 7}, {"tpm_limit": 2})
    elsewhere = Change("tenant", "acme", {"tpm_limit": 1, "seen_at": "later"}, {"tpm_limit": 2, "seen_at": "later"})
    assert digest([seen]) == digest([elsewhere])
    assert digest([seen]) != digest([written_by_another])
    assert digest([seen]) != digest([seen, written_by_another])
