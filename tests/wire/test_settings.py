from __future__ import annotations

from pathlib import Path

import pytest

from wire.settings import BadSetting, Setting, comma_separated, number, one_of, path, whole_number, yes_or_no


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (whole_number(1, 9), "9", 9),
        (number(0.5, 2), "0.5", 0.5),
        (yes_or_no, "ON", True),
        (yes_or_no, "0", False),
        (one_of("a", "b"), "b", "b"),
        (path, "/x", Path("/x")),
        (comma_separated, "a, b,,", ("a", "b")),
    ],
)
def test_a_setting_is_read_from_its_variable(parse, text, value):
    assert Setting("HEADWORKS_X", None, "why", parse).read({"HEADWORKS_X": text}) == value


@pytest.mark.parametrize(
    ("parse", "text", "right"),
    [
        (whole_number(1, 9), "0", "a whole number from 1 to 9"),
        (whole_number(1, 9), "1.5", "a whole number from 1 to 9"),
        (number(0, 1), "nan", "a number from 0 to 1"),
        (number(0, 1), "inf", "a number from 0 to 1"),
        (number(0, 1), "x", "a number from 0 to 1"),
        (yes_or_no, "maybe", "true or false"),
        (one_of("a", "b"), "c", "one of a, b"),
    ],
)
def test_a_bad_value_is_refused_by_name_with_what_is_right(parse, text, right):
    with pytest.raises(BadSetting, match=f"HEADWORKS_X: '{text}' is not valid: give {right}"):
        Setting("HEADWORKS_X", None, "why", parse).read({"HEADWORKS_X": text})


def test_a_missing_or_empty_variable_gives_the_default():
    setting = Setting("HEADWORKS_X", 7, "why", whole_number())
    assert setting.read({}) == setting.read({"HEADWORKS_X": ""}) == 7


def test_a_secret_is_not_shown_in_its_refusal():
    with pytest.raises(BadSetting) as refusal:
        Setting("HEADWORKS_X", 7, "why", whole_number(), secret=True).read({"HEADWORKS_X": "hunter2"})
    assert "hunter2" not in str(refusal.value)
