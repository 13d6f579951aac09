from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gpu_agent.nvml.xids import UNKNOWN, XID_RULES, Action, BadXidRules, XidClass, load_rules

PAGE = Path(__file__).parents[3] / "docs" / "gpus.md"

# By XID: class, action, what follows where that does not help, and how grave its event is.
TABLE = [
    ("13 31", "application", "restart_app", "run_diagnostics", "warning"),
    ("8 11 25 32 39 40 41 68 69 80", "application", "restart_app", "none", "warning"),
    ("37 38 43 44", "application", "none", "none", "info"),
    ("45", "sympathetic", "none", "none", "info"),
    ("46 62 109 110 119 120 143 158", "driver", "reset_gpu", "contact_support", "critical"),
    ("48 95", "memory", "cordon_drain_reset", "none", "critical"),
    ("54", "hardware", "check_mechanicals", "none", "warning"),
    ("61 122 123 124 125", "hardware", "contact_support", "none", "warning"),
    ("63", "memory", "none", "reset_gpu", "info"),
    ("64", "memory", "reset_gpu", "contact_support", "critical"),
    ("74 144 147 148 150", "nvlink", "check_nvlink", "none", "warning"),
    ("79", "hardware", "cordon_reboot", "contact_support", "critical"),
    ("92 93 121 141 157", "hardware", "none", "contact_support", "info"),
    ("94", "memory", "restart_app", "none", "warning"),
    ("136 149 155", "nvlink", "reset_gpu", "none", "critical"),
    ("137 145 146", "nvlink", "none", "none", "info"),
    ("140 156", "memory", "reset_gpu", "none", "critical"),
    ("151", "driver", "restart_vm", "none", "warning"),
    ("154", "information", "read_recovery_action", "none", "warning"),
    ("159", "driver", "check_uvm", "none", "warning"),
    ("160 161 162 171 172", "information", "none", "none", "info"),
    ("163 164 165", "hardware", "none", "contact_support", "info"),
    ("166 170", "nvlink", "contact_support", "none", "warning"),
    ("167 169", "driver", "contact_support", "none", "warning"),
    ("168", "memory", "contact_support", "none", "warning"),
]
ROWS = [(int(xid), *row) for numbers, *row in TABLE for xid in numbers.split()]


@pytest.mark.parametrize(("xid", "kind", "action", "then", "severity"), ROWS)
def test_class_action_and_severity_of_each_xid(xid, kind, action, then, severity):
    rule = XID_RULES[xid]
    assert (rule.kind, rule.action, rule.then, rule.severity) == (kind, action, then, severity)
    assert rule.name != UNKNOWN.name


def test_the_table_holds_no_other_xid():
    assert XID_RULES.keys() == {xid for xid, *_ in ROWS}
    assert len(ROWS) == len(XID_RULES), "each is there once"


def test_162_ends_163_and_nothing_else_ends_another():
    assert {xid: rule.ends for xid, rule in XID_RULES.items() if rule.ends} == {162: 163}


def test_a_site_overrides_single_facts_and_adds_xids(tmp_path):
    file = tmp_path / "xids.json"
    file.write_text(
        '{"94": {"action": "cordon_drain_reset"}, "999": {"name": "Ours", "class": "hardware", "ends": 94}}'
    )
    rules = load_rules(str(file))
    assert (rules[94].name, rules[94].action, rules[94].severity) == (
        "Contained ECC error", "cordon_drain_reset", "critical",
    )  # fmt: skip
    assert (rules[999].name, rules[999].kind, rules[999].action) == ("Ours", "hardware", "contact_support")
    assert rules[999].ends == 94
    assert rules[79] == XID_RULES[79]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"94": {"action": "explode"}}', "explode"),
        ('{"94": {"acton": "none"}}', "acton"),
        ('{"94": {"ends": -1}}', "ends"),
        ('{"ninety": {}}', "int"),
        ("[]", "object"),
        ("{", "truncated"),
    ],
)
def test_overrides_that_make_no_sense_are_refused_by_name(tmp_path, text, named):
    file = tmp_path / "xids.json"
    file.write_text(text)
    with pytest.raises(BadXidRules, match=named):
        load_rules(str(file))


def test_a_rules_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(BadXidRules, match="No such file"):
        load_rules(str(tmp_path / "none.json"))


def test_the_page_about_xids_shows_a_file_that_can_be_used_and_every_value_that_it_may_have(tmp_path):
    page = PAGE.read_text()
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example is not None
    file = tmp_path / "xids.json"
    file.write_text(example[1])
    assert load_rules(str(file))[163].kind == "information"
    rows = dict(re.findall(r"^\| (`class`|`action`)[^|]*\| (.*) \|$", page, re.MULTILINE))
    assert rows["`class`"].split(", ") == list(get_args(XidClass))
    assert rows["`action`"].split(", ") == list(get_args(Action))
