from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.errors import Malformed, TooLarge
from controlplane.core.yaml_text import YamlForm, write_yaml

FORM = YamlForm("texts", max_bytes=1000, max_depth=4)
texts = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp"]) | st.sampled_from("\n :#'\"{}[]|>-~01."), max_size=20
) | st.sampled_from(["1e5", "0x1f", "0o7", "007", "1:30", "yes", "null", "~", "true", "-1", ".5"])
values = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | texts


@given(st.dictionaries(texts, st.dictionaries(texts, values, max_size=4) | st.lists(values, max_size=4), max_size=4))
def test_what_is_written_is_read_as_the_same(document: Any) -> None:
    assert YamlForm("texts", max_bytes=1 << 20, max_depth=4).read(write_yaml(document).encode()) == document


@given(st.dictionaries(texts, texts, max_size=4))
def test_readers_of_the_older_yaml_read_the_same(document: Any) -> None:
    assert yaml.safe_load(write_yaml(document)) == document


def test_a_list_that_stands_twice_is_written_twice() -> None:
    names = ["a"]
    assert "&" not in write_yaml({"one": names, "two": names})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-7", -7), ("0", 0), ("007", "007"), ("1_000", "1_000"), ("1.5", "1.5"), ("9" * 30, "9" * 30),
        ("true", True), ("FALSE", False), ("yes", "yes"), ("off", "off"), ("22:00", "22:00"), ("", None), ("~", None),
        ("null", None), ("'null'", "null"), ('"1"', "1"), ("|\n  1", "1"),
    ],
)  # fmt: skip
def test_plain_scalars_are_what_yaml_1_2_says(text: str, value: Any) -> None:
    read = FORM.read(f"a: {text}".encode())["a"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &x 1", "an anchor or a tag at line 1, column 4"),
        ("a: &x {}", "an anchor or a tag"),
        ("a: !!int '1'", "an anchor or a tag"),
        ("a: !!python/object:os.system []", "an anchor or a tag"),
        ("&x a: 1", "an anchor or a tag at line 1, column 1"),
        ("!!binary YQ==: 1", "an anchor or a tag"),
        ("a: *x", "an alias"),
        pytest.param("? " + "a" * 200 + "\n: 1\n? " + "a" * 200 + "\n: 2", "^'a{100}' twice", id="long key"),
        ("a: 1\na: 2", "'a' twice in one map at line 2"),
        ("[[[[[[1]]]]]]", "nested too deep"),
        ("--- 1\n--- 2", "give one document"),
    ],
)
def test_what_is_no_plain_document_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        FORM.read(text.encode())


def test_a_large_text_is_refused_unread() -> None:
    with pytest.raises(TooLarge, match="texts may have 1000 bytes"):
        FORM.read(b"[" * 1001)
