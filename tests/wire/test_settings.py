from __future__ import annotations

from pathlib import Path

import pytest

from wire.settings import (
    BadSetting,
    Setting,
    base_url,
    check_all,
    comma_separated,
    number,
    one_of,
    path,
    whole_number,
    yes_or_no,
)


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


SECRET = Setting("HEADWORKS_X", "default", "why", one_of("hunter2"), secret=True, in_file=True)


def test_a_secret_may_stand_in_a_file(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    assert SECRET.read({"HEADWORKS_X_FILE": str(file)}) == "hunter2"
    assert SECRET.read({"HEADWORKS_X_FILE": ""}) == "default"
    assert SECRET.variables == ("HEADWORKS_X", "HEADWORKS_X_FILE")


def test_a_row_that_names_no_file_reads_none(tmp_path):
    row = Setting("HEADWORKS_X", "default", "why", str, secret=True)
    assert row.read({"HEADWORKS_X_FILE": str(tmp_path / "absent")}) == "default"
    assert row.variables == ("HEADWORKS_X",)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty"),
        (b"hunter2\xff", "holds other bytes than UTF-8 text"),
        (b"hunter2" * 2000, "is longer than 10000 bytes"),
    ],
)
def test_a_file_that_gives_no_secret_is_refused_by_its_path(tmp_path, held, said):
    file = tmp_path / "secret"
    if held is not None:
        file.write_bytes(held)
    with pytest.raises(BadSetting) as refusal:
        SECRET.read({"HEADWORKS_X_FILE": str(file)})
    assert str(refusal.value) == f"HEADWORKS_X_FILE: {file} {said}"


def test_a_bad_secret_in_a_file_is_not_shown(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hunter3")
    with pytest.raises(BadSetting, match="HEADWORKS_X: its value is not valid") as refusal:
        SECRET.read({"HEADWORKS_X_FILE": str(file)})
    assert "hunter3" not in str(refusal.value)


def test_a_secret_that_is_given_twice_is_refused(tmp_path):
    with pytest.raises(BadSetting, match="HEADWORKS_X and HEADWORKS_X_FILE are both given: give one of them"):
        SECRET.read({"HEADWORKS_X": "hunter2", "HEADWORKS_X_FILE": str(tmp_path)})


def test_an_option_is_held_to_the_rules_of_its_row(monkeypatch):
    monkeypatch.setenv("HEADWORKS_PORT", "8000")
    port = Setting("HEADWORKS_PORT", 80, "r", whole_number(1, 65_535))
    assert (port.read_option(None), port.read_option("81")) == (8000, 81)
    with pytest.raises(BadSetting, match=r"HEADWORKS_PORT: '70000' is not valid: give a whole number"):
        port.read_option("70000")


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://x?y", "http://x y", "http://user:secret@x"])
def test_an_address_that_is_none_is_refused_without_showing_its_credentials(url):
    row = Setting("HEADWORKS_URL", "", "r", base_url)
    with pytest.raises(BadSetting, match="HEADWORKS_URL") as refused:
        row.read_option(url)
    assert "secret" not in str(refused.value)
    assert row.read_option("https://x:1/y") == "https://x:1/y"


def test_a_row_that_is_read_late_is_found_bad_at_the_start(monkeypatch: pytest.MonkeyPatch):
    rows = (
        Setting("HEADWORKS_A", 1, "used at once", whole_number()),
        Setting("HEADWORKS_B", 1, "late", whole_number()),
    )
    check_all(rows)
    monkeypatch.setenv("HEADWORKS_B", "soon")
    with pytest.raises(BadSetting, match="HEADWORKS_B: 'soon'"):
        check_all(rows)
