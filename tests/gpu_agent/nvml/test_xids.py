from __future__ import annotations

import pytest

from gpu_agent.nvml.xids import XID_RULES, BadXidRules, load_rules


@pytest.mark.parametrize(
    ("xid", "action", "severity"),
    [
        (13, "restart_app", "warning"),
        (45, "none", "info"),
        (48, "cordon_drain_reset", "critical"),
        (79, "cordon_reboot", "critical"),
        (94, "restart_app", "warning"),
        (95, "cordon_drain_reset", "critical"),
        (119, "reset_gpu", "critical"),
    ],
)
def test_actions_and_severities_of_the_table(xid, action, severity):
    assert (XID_RULES[xid].action, XID_RULES[xid].severity) == (action, severity)


def test_a_site_overrides_single_facts_and_adds_xids(tmp_path):
    file = tmp_path / "xids.json"
    file.write_text('{"94": {"action": "cordon_drain_reset"}, "999": {"name": "Ours", "class": "hardware"}}')
    rules = load_rules(str(file))
    assert (rules[94].name, rules[94].action, rules[94].severity) == (
        "Contained ECC error", "cordon_drain_reset", "critical",
    )  # fmt: skip
    assert (rules[999].name, rules[999].kind, rules[999].action) == ("Ours", "hardware", "contact_support")
    assert rules[79] == XID_RULES[79]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"94": {"action": "explode"}}', "explode"),
        ('{"94": {"acton": "none"}}', "acton"),
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
