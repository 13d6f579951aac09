"""A diff that a person reads says all that a patch does, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.changes import Change
from controlplane.web.differences import (
    OBJECTS_SHOWN,
    SPELT_OUT_MAX,
    Difference,
    Shown,
    Value,
    digest,
    of_changes,
    of_patch,
    shortened,
)
from controlplane.web.templatetags.diffs import side
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
    differences = of_patch(diff_patch(before, after), diff_patch(after, before))
    old, new = _flat(before), _flat(after)
    assert merge_patch(before, diff_patch(before, after)) == after
    leaves = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    # A map that only gains or loses entries changes from or to an empty one: its entries say so.
    told = [
        " › ".join((each.noun, each.key, *place))
        for each in differences
        for place in [value.place for value in each.values] or [()]
    ]
    assert {path for path in leaves if "{}" not in (old.get(path), new.get(path))} <= set(told)
    assert set(told) <= leaves
    assert len(told) == len(set(told))


@given(_documents, _documents)
def test_an_object_is_new_removed_or_changed_as_it_is(before: dict[str, Any], after: dict[str, Any]) -> None:
    def objects(document: dict[str, Any]) -> set[tuple[str, str]]:
        return {(section, key) for section, entries in document.items() for key in entries}

    old, new = objects(before), objects(after)
    known = {(False, True): "create", (True, True): "update", (True, False): "delete"}
    for each in of_patch(diff_patch(before, after), diff_patch(after, before)):
        assert each.action == known[(each.noun, each.key) in old, (each.noun, each.key) in new]


def test_a_changed_value_shows_both_sides() -> None:
    differences = of_patch({"tenants": {"acme": {"tpm_limit": 5}}}, {"tenants": {"acme": {"tpm_limit": 9}}})
    assert differences == [Difference("tenant", "acme", "update", [Value(("tpm_limit",), "9", "5")])]


def test_a_new_entry_is_spelt_out_and_a_removed_one_too() -> None:
    entry = {"weight": 2, "blocked": False}
    [added] = of_patch({"tenants": {"new": entry}}, {"tenants": {"new": None}})
    [removed] = of_patch({"tenants": {"new": None}}, {"tenants": {"new": entry}})
    assert added == Difference(
        "tenant", "new", "create", [Value(("blocked",), None, False), Value(("weight",), None, "2")]
    )
    assert removed == Difference(
        "tenant", "new", "delete", [Value(("blocked",), False, None), Value(("weight",), "2", None)]
    )


def test_a_changed_row_is_told_as_its_entry_in_the_configuration_without_what_is_unset() -> None:
    made = {"name": "acme", "weight": 1, "tpm_limit": None, "models": ["m/a", "m/b"], "created_at": "now"}
    assert of_changes([Change("tenant", "acme", None, made)]) == [
        Difference("tenant", "acme", "create", [Value(("models",), None, "m/a, m/b"), Value(("weight",), None, "1")])
    ]
    changed = Change("tenant", "acme", made, {**made, "weight": 3})
    [difference] = of_patch({"tenants": {"acme": {"weight": 3}}}, {"tenants": {"acme": {"weight": 1}}})
    assert of_changes([changed]) == [difference]


def test_a_key_is_known_by_its_first_characters_and_never_by_its_hash() -> None:
    entry = {"prefix": "hw-abcde", "tenant": "acme", "expires_at_ms": 1_798_761_600_000}
    [made] = of_patch({"keys": {"f" * 64: entry}}, {"keys": {"f" * 64: None}})
    blocking = ({"keys": {"f" * 64: {"blocked": True}}}, {"keys": {"f" * 64: {"blocked": False}}})
    [blocked] = of_patch(*blocking, {"f" * 64: "hw-abcde"})
    [gone] = of_patch(*blocking)
    assert [each.key for each in (made, blocked, gone)] == ["hw-abcde…", "hw-abcde…", "ffffffff…"]
    assert Value(("expires_at_ms",), None, "2027-01-01T00:00:00.000Z") in made.values
    row = {"id": 7, "prefix": "hw-abcde", "tenant": "acme", "blocked": True}
    assert [each.key for each in of_changes([Change("key", "7", row, None)])] == ["hw-abcde…"]


def test_many_new_objects_are_folded_and_a_page_holds_a_bounded_number() -> None:
    def new(count: int) -> Shown:
        names = {f"t{number}": {"weight": 1} for number in range(count)}
        return shortened(of_patch({"tenants": names}, {"tenants": dict.fromkeys(names)}))

    assert (new(SPELT_OUT_MAX).folded, new(SPELT_OUT_MAX + 1).folded) == (False, True)
    many = new(OBJECTS_SHOWN + 5)
    assert (len(many.objects), many.more) == (OBJECTS_SHOWN, 5)


def test_the_digest_names_the_values_that_are_replaced() -> None:
    seen = Change("tenant", "acme", {"tpm_limit": 1, "seen_at": "now"}, {"tpm_limit": 2, "seen_at": "now"})
    written_by_another = Change("tenant", "acme", {"tpm_limit": 7}, {"tpm_limit": 2})
    elsewhere = Change("tenant", "acme", {"tpm_limit": 1, "seen_at": "later"}, {"tpm_limit": 2, "seen_at": "later"})
    assert digest([seen]) == digest([elsewhere])
    assert digest([seen]) != digest([written_by_another])
    assert digest([seen]) != digest([seen, written_by_another])


def test_the_digest_of_a_new_row_does_not_depend_on_a_name_that_is_made_anew_each_time() -> None:
    seen, carried_out = (Change("act", act_id, None, {"id": act_id, "action": "sleep"}) for act_id in ("a1", "b2"))
    assert digest([seen]) == digest([carried_out])
    seen, carried_out = (Change("what_if", str(number), None, {"id": number, "pool": "chat"}) for number in (1, 2))
    assert digest([seen]) == digest([carried_out])
    acme, umbrella = (Change("tenant", name, None, {"name": name}) for name in ("acme", "umbrella"))
    assert digest([acme]) != digest([umbrella])


def test_an_act_is_known_by_what_it_does_and_shows_what_was_asked_alone() -> None:
    form = {"id": "a1", "node": "n1", "engine": "e1", "action": "sleep", "arguments": {"level": 2}, "order": 7}
    (told,) = of_changes([Change("act", "a1", None, {**form, "state": "waiting", "issued_by": "omar"})])
    assert told.key == "Put to sleep e1"
    assert {value.place for value in told.values} == {("node",), ("engine",), ("action",), ("arguments", "level")}
    (cancelled,) = of_changes([Change("act", "a1", {**form, "state": "waiting"}, {**form, "state": "cancelled"})])
    assert cancelled.values == [Value(("state",), "waiting", "cancelled")]
    (removed,) = of_patch({"acts": {"a1": None}}, {"acts": {"a1": {"action": "release_gpus", "node": "n1"}}})
    assert (removed.noun, removed.key, removed.action) == ("act", "Release the GPUs n1", "delete")


def test_hours_of_the_configuration_read_as_on_a_clock() -> None:
    patch = {"tenants": {"acme": {"schedule": {"nights": {"from_minute": 1320, "until_minute": 390}}}}}
    [difference] = of_patch(patch, {"tenants": {"acme": {"schedule": None}}})
    assert [(value.place[-1], value.after) for value in difference.values] == [
        ("from_minute", "22:00"),
        ("until_minute", "06:30"),
    ]


def test_what_is_empty_is_none_and_a_moment_reads_as_people_write_it() -> None:
    [gone] = of_changes(
        [Change("model", "m", {"adapters": {}, "scopes": [], "made_at": "2027-01-01T10:00:00.123Z"}, None)]
    )
    shown = {line.place[0]: side(line.before, line.place, "model") for line in gone.values if line.before is not None}
    assert shown == {"adapters": "none", "scopes": "none", "made_at": "2027-01-01 10:00:00 UTC"}
