from __future__ import annotations

import json
import subprocess
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.services import service_binary
from tests.wire.examples import gateway_content
from wire.canonical import (
    MAX_DEPTH,
    MAX_INTEGER,
    NotCanonical,
    canonical_json,
    check_canonical,
    content_hash,
    diff_patch,
    merge_patch,
)

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\n\u0080\u2028\ufeff\uffff"))
leaves = texts | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER)
documents = st.dictionaries(
    texts, st.recursive(leaves, lambda inner: st.dictionaries(texts, inner, max_size=4), max_leaves=12), max_size=6
)


@given(st.lists(documents, min_size=1, max_size=30))
@example([{"b": {"z": 1, "a": '\U0001f600\u00e9\u2028"\\/'}, "a": -MAX_INTEGER, "\U00010000": 1, "\uffff": 2}])
@example([{"a": {"b": {"z": {"b": 1, "a": 2}, "\U00010000": 1, "\uffff": 2, "é": 3, "e": 4}}}])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_canonical_json_is_what_jq_prints(found):
    jq = service_binary("jq")
    for document in found:
        check_canonical(document)
    printed = subprocess.run(
        [jq, "-cS", "."], input="\n".join(map(json.dumps, found)).encode(), capture_output=True, check=True
    ).stdout
    assert printed == b"".join(canonical_json(document) + b"\n" for document in found)


def test_the_hash_of_a_known_document_never_changes():
    # printf '{"a":1,"b":{"c":true,"d":"ü"}}' | sha256sum
    document = {"b": {"d": "ü", "c": True}, "a": 1}
    assert content_hash(document) == "3f61ce38e9d36ce2d8ae4783ecebea4375dfaebe9ec76dfdfa792676e2919412"


@given(documents)
def test_key_order_does_not_change_the_hash(document):
    turned = dict(reversed(document.items()))
    assert content_hash(turned) == content_hash(document)
    assert json.loads(canonical_json(turned)) == document


def test_a_hash_takes_no_quadratic_time_however_keys_are_ordered():
    entry = {"weight": 100, "models": {"b": True, "a": True}}
    ascending = {f"t-{number:06}": entry for number in range(20_000)}
    one_high = {"z": entry, **ascending}
    began = time.process_time()
    content_hash({"tenants": ascending, "z": entry})
    usual_seconds = time.process_time() - began
    began = time.process_time()
    content_hash({"tenants": one_high, "z": entry})
    assert time.process_time() - began < 5 * usual_seconds


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"a": {"b/c": 0.5}}, "/a/b~1c"),
        ({"a": None}, "/a"),
        ({"a": {"m~n": []}}, "/a/m~0n"),
        ({"a": MAX_INTEGER + 1}, "/a"),
        ({"a": -MAX_INTEGER - 1}, "/a"),
        ({"a": "x\x07"}, "/a"),
        ({"a": "x\x7f"}, "/a"),
        ({"a": "\ud800"}, "/a"),
        ({"a\rb": 1}, "/a\\rb"),
        ({"a": {1: "x"}}, "/a"),
        (1.0, "/"),
    ],
)
def test_what_has_no_canonical_form_is_refused_at_its_path(document, path):
    with pytest.raises(NotCanonical) as refusal:
        check_canonical(document)
    assert refusal.value.path == path


def test_a_document_nested_too_deeply_is_refused():
    document: dict[str, object] = {}
    for _ in range(MAX_DEPTH - 1):
        document = {"a": document}
    check_canonical(document)
    with pytest.raises(NotCanonical, match="nested"):
        check_canonical({"a": document})


def test_the_example_slice_is_canonical():
    check_canonical(gateway_content())


@given(documents, documents)
def test_a_diff_merged_gives_the_new_document(before, after):
    merged = merge_patch(before, diff_patch(before, after))
    # As bytes: in Python 1 == True.
    assert canonical_json(merged) == canonical_json(after)


def test_a_number_that_becomes_a_truth_value_differs_however_deep():
    assert diff_patch({"a": {"b": 1}}, {"a": {"b": True}}) == {"a": {"b": True}}


@given(documents)
def test_a_document_does_not_differ_from_itself(document):
    assert diff_patch(document, json.loads(json.dumps(document))) == {}


@given(documents, documents)
def test_neither_diff_nor_merge_changes_its_arguments(before, after):
    kept = json.dumps([before, after])
    patch = diff_patch(before, after)
    kept_patch = json.dumps(patch)
    merge_patch(before, patch)
    assert json.dumps([before, after]) == kept
    assert json.dumps(patch) == kept_patch


def test_a_patch_holds_only_what_differs():
    before, after = gateway_content(), gateway_content()
    after["tenants"]["acme"]["tpm_limit"] = 1
    del after["tenants"]["umbrella"]
    assert diff_patch(before, after) == {"tenants": {"acme": {"tpm_limit": 1}, "umbrella": None}}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_does_what_the_appendix_of_rfc_7396_shows(target, patch, result):
    assert merge_patch(target, patch) == result
