"""`headworks plan`, as a person types it."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.planner import plan_command
from controlplane.planner.plan_fields import PlanFields
from policy.planning.known import KNOWN
from tests.controlplane.test_cli import headworks

LLAMA = "meta-llama/Llama-3.3-70B"
ON_H100 = ("--gpu", "H100-SXM", "--per-node", "8", "--weights", "fp8", "--context", "32768")


def plan(*words: str) -> int:
    parser = argparse.ArgumentParser()
    plan_command.add_to(parser.add_subparsers())
    arguments = parser.parse_args(["plan", *words])
    status: int = arguments.run(arguments)
    return status


def test_a_file_on_disk_is_planned_with_where_there_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(KNOWN[LLAMA]))
    done = headworks("plan", str(file), *ON_H100, "--json", HEADWORKS_DATA_DIR=str(tmp_path / "none"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["chosen"]["tensor_parallel"] == 2
    assert not (tmp_path / "none").exists()


def test_a_plan_is_printed_as_tables_with_its_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--model", LLAMA, *ON_H100, "--prompt", "p50=1500,p95=8000", "--output", "mean=300,p95=900") == 0
    text = capsys.readouterr().out
    assert "70.55 B parameters, weights in fp8 72.7 GB" in text
    assert "Are they linked by NVLink? yes: " in text
    assert "max_num_seqs 45: " in text
    assert "99 %" in text
    assert "tensor parallel   8   1" in text


def test_what_does_not_fit_ends_with_1_and_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--model", LLAMA, "--gpu", "H100-SXM", "--context", "8192") == 1
    text = capsys.readouterr().out
    assert "It does not fit: over 1 GPU " in text
    assert "- weights in int4 instead of bf16" in text


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(KNOWN["Qwen/Qwen2.5-7B"]).encode())))
    rates = ("--prefill-rate", "9000", "--decode-rate", "900")
    assert plan("-", "--gpu-memory-gib", "44.5", "--context", "8192", *rates) == 0
    assert "reads 9000 and writes 900 tokens a second (typed)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "org/none", "--gpu", "L4"), "/model/known: no such model"),
        (("--model", LLAMA, "--gpu", "L5"), "/gpus/known: no such GPU"),
        (("--model", LLAMA, "--gpu", "L4", "--per-node", "0"), "/gpus/per_node"),
        (("--model", LLAMA, "--gpu", "L4", "--context", "-1"), "/context_tokens"),
        (("--model", LLAMA, "--gpu-memory-gib", "0"), "/gpus/memory_bytes"),
        (("--model", LLAMA, "--gpu", "L4", "--prefill-rate", "5"), "/rates"),
        (("--model", LLAMA, "--gpu", "L4", "--prefill-rate", "nan", "--decode-rate", "1"), "/rates/prefill_tokens"),
        (("--model", LLAMA, "--gpu", "L4", "--output", "p50=5"), "/lengths/output"),
    ],
)
def test_what_is_wrong_ends_with_2_and_its_name(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(*words) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give either a config.json"),
        (("--model", LLAMA, "some.json", "--gpu", "L4"), "give either a config.json"),
        (("--model", LLAMA), "give either --gpu or --gpu-memory-gib"),
        (("--model", LLAMA, "--gpu-memory-gib", "nan"), "--gpu-memory-gib: give a number"),
        (("--model", LLAMA, "--gpu-memory-gib", "inf"), "--gpu-memory-gib: give a number"),
        (("--model", LLAMA, "--gpu", "L4", "--prompt", "1500"), "'1500': give lengths such as"),
        (("--model", LLAMA, "--gpu", "L4", "--prompt", "mean=-5"), "'mean=-5': give lengths"),
        (("/none/config.json", "--gpu", "L4"), "/none/config.json: No such file"),
    ],
)
def test_what_cannot_be_read_ends_with_2(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        plan(*words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{" * 400_000, " " * 11_000_000, '{"a": NaN}', "[]"])
def test_a_file_that_is_no_config_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    assert plan(str(file), "--gpu", "L4") == 2
    assert capsys.readouterr().err.startswith("headworks: /: ")


def test_the_list_names_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--list") == 0
    rows = _rows(capsys)
    assert ["H200", "140.4", "GiB", "4800", "GB/s", "989", "TFLOP/s", "nvlink"] in rows
    assert all([name] in rows for name in KNOWN)


def _rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_fan_out_is_printed_by_call_and_by_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body: dict[str, Any] = {
        "users": 1000, "requests_per_user_per_hour": 3.6,
        "calls": [{"name": "generate", "prompt_tokens": 4000, "output_tokens": 400}],
        "rates": {"main": {"prefill_tokens_per_second": 8000, "decode_tokens_per_second": 1500}},
    }  # fmt: skip
    file = tmp_path / "flow.json"
    file.write_text(json.dumps(body))
    assert plan("--fan-out", str(file)) == 0
    # 4,000 ÷ 8,000 and 400 ÷ 1,500, of GPUs at 80 %.
    assert ["main", "1.00", "4000", "400", "0.62", "0.33", "1"] in _rows(capsys)
    body["rates"] = {"main": {"pool": "chat"}}
    file.write_text(json.dumps(body))
    assert plan("--fan-out", str(file)) == 2
    assert "/rates/main: without a fleet type its rates" in capsys.readouterr().err


def test_the_command_s_defaults_are_those_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--model", LLAMA, *ON_H100, "--json") == 0
    serving = json.loads(capsys.readouterr().out)["serving"]
    assert serving["utilisation_permille"] == PlanFields.model_fields["utilisation_permille"].default
    assert serving["kv_cache_dtype"] == PlanFields.model_fields["kv_cache_dtype"].default
