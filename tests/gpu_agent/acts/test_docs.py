from __future__ import annotations

import re
from pathlib import Path

from gpu_agent.acts.outcome import REASONS
from wire.acts import ACTIONS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "acts.md").read_text()


def test_every_reason_is_documented_and_no_other():
    _, _, reasons = PAGE.partition("\n## Reasons\n")
    assert re.findall(r"^\| `(\w+)` \|", reasons, re.M) == list(REASONS)


def test_every_action_and_argument_is_documented():
    table, _, _ = PAGE.partition("\n## ")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])} == set(ACTIONS)
    for name, action in ACTIONS.items():
        (row,) = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        assert all(f"`{argument}`" in row.split("|")[3] for argument in action.__struct_fields__)
