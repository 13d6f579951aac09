"""docs/planner.md: each number of its worked examples is what the program says."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest

from controlplane.planner import plan_command

PAGE = (Path(__file__).parents[3] / "docs/planner.md").read_text()
RUNS = re.findall(r"```sh\n(headworks plan .*?)\n```\n\n```text\n(.*?)\n```", PAGE, re.DOTALL)
FLOW, FLOW_TEXT = re.findall(r"```json\n(.*?)\n```\n\n```text\n(.*?)\n```", PAGE, re.DOTALL)[0]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    parser = argparse.ArgumentParser()
    plan_command.add_to(parser.add_subparsers())
    arguments = parser.parse_args(words)
    arguments.run(arguments)
    return capsys.readouterr().out.rstrip("\n")


def test_the_page_has_its_examples() -> None:
    assert len(RUNS) == 2


@pytest.mark.parametrize(("command", "text"), RUNS)
def test_a_command_of_the_page_prints_what_stands_below_it(
    command: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, *shlex.split(command.replace("\\\n", ""))[1:]) == text


def test_the_page_s_flow_needs_what_stands_below_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flow.json"
    file.write_text(FLOW)
    assert json.loads(FLOW)["users"] == 5000
    assert printed(capsys, "plan", "--fan-out", str(file)) == FLOW_TEXT
