"""`headworks tune` and `headworks what-if`: benchmarks are run and read, engines restarted, trouble has a name."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cli import main
from controlplane.planner import what_if_engine
from controlplane.planner.what_if_tools import TOOLS, Request, ToolTrouble, results
from controlplane.planner.what_if_tune import goodput, missed
from tests.controlplane.planner.lengths import ask
from tests.gateway.simulated import SERVED, simulated_engine
from wire import calibration

RECORDED = Path(__file__).parent / "recorded"
# Sends what it is asked to an engine and writes what vLLM's benchmark would.
BENCHMARK = """#!{python}
import json, sys, time, urllib.request
given = dict(zip(sys.argv[3::1], sys.argv[4::1]))
columns = {{name: [] for name in ("start_times", "ttfts", "latencies", "input_lens", "output_lens", "errors")}}
for _ in range(int(given["--num-prompts"])):
    body = json.dumps({{"model": given["--model"], "prompt": "one two", "max_tokens": 4, "ignore_eos": True}}).encode()
    url, headers = given["--base-url"] + "/v1/completions", {{"Content-Type": "application/json"}}
    began = time.perf_counter()
    usage = json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))["usage"]
    took = time.perf_counter() - began
    values = (began, took / 2, took, usage["prompt_tokens"], usage["completion_tokens"], "")
    for name, value in zip(columns, values):
        columns[name].append(value)
with open(given["--result-dir"] + "/" + given["--result-filename"], "w") as file:
    json.dump(columns, file)
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a simulated engine that answers at once."""
    with simulated_engine(tmp_path_factory.mktemp("engine")) as url:
        yield url


def program(folder: Path, text: str) -> str:
    file = folder / "benchmark"
    file.write_text(text.format(python=sys.executable))
    file.chmod(0o700)
    return str(file)


def tune(url: str, *options: str) -> int:
    fixed = ["--model", SERVED, "--rate", "100", "--requests", "4", "--prompt-tokens", "8", "--output-tokens", "4"]
    return main(["tune", "--url", url, *fixed, "--max-num-batched-tokens", "64,128", *options])


def test_results_of_vllms_benchmark_are_read() -> None:
    requests = results(TOOLS["vllm"], RECORDED / "vllm_bench_serve_0_32.json")
    first = requests[0]
    assert (len(requests), all(request.ok for request in requests)) == (5, True)
    assert first.tpot == pytest.approx((first.e2e - first.ttft) / (first.output_tokens - 1))
    assert 100 <= first.prompt_tokens <= 300


def test_results_of_guidellm_are_read() -> None:
    requests = results(TOOLS["guidellm"], RECORDED / "guidellm_0_8.json")
    first = requests[0]
    assert len(requests) == 3
    assert first.tpot == pytest.approx((first.e2e - first.ttft) / (first.output_tokens - 1), rel=0.05)


@pytest.mark.parametrize("tool", TOOLS)
def test_results_that_are_none_are_named(tool: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    with pytest.raises(ToolTrouble, match="wrote no results"):
        results(TOOLS[tool], file)
    for text in ("{", "[]", "{}", '{"benchmarks": []}'):
        file.write_text(text)
        with pytest.raises(ToolTrouble, match="not understood"):
            results(TOOLS[tool], file)


def test_a_request_is_good_when_it_misses_nothing() -> None:
    request = Request(True, 0.0, 0.2, 0.05, 1.2, 10, 21)
    slow = request._replace(ttft=0.9, started_at=1.0)
    failed = request._replace(ok=False, started_at=0.5)
    slo_ms = {"ttft": 500, "tpot": 60}
    assert [missed(each, slo_ms) for each in (request, slow, failed)] == [None, "ttft", "refused"]
    assert missed(request, {"tpot": 40}) == "tpot"
    assert goodput([request, slow, failed], slo_ms) == pytest.approx(1 / 2.2)


def test_a_sweep_restarts_the_engine_between_points_and_can_be_calibrated_by(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restarts, report = tmp_path / "restarts", tmp_path / "report.json"
    command = program(tmp_path, BENCHMARK)
    script = tmp_path / "restart"
    script.write_text(f'#!/bin/sh\necho "$1 $2 $HEADWORKS_MAX_NUM_SEQS" >> {restarts}\n')
    script.chmod(0o700)
    status = tune(
        engine, "--tool-path", command, "--max-num-seqs", "96,16", "--repeats", "2", "--ttft-ms", "60000",
        "--restart-command", f"{script} {{max_num_seqs}} {{max_num_batched_tokens}}", "--json", str(report),
    )  # fmt: skip
    assert status == 0
    assert restarts.read_text().splitlines() == ["16 64 16", "16 128 16", "96 128 96"]
    written = json.loads(report.read_text())
    assert [bool(point["cannot"]) for point in written["points"]] == [False, False, True, False]
    assert all(load["good_share"] == 1 for point in written["points"] for load in point["loads"])
    assert "* peak: " in capsys.readouterr().out
    observed = [point["observation"] for point in written["points"] if point["observation"]]
    read = calibration.read_json(json.dumps({"observations": observed}).encode())
    assert read.observations[0].max_num_batched_tokens == 64


def test_an_engine_that_does_not_start_is_a_point_without_goodput(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--tool-path", program(tmp_path, BENCHMARK), "--max-num-seqs", "8", "--ttft-ms", "60000")
    assert tune(engine, *options, "--restart-command", "false") == 0
    said = capsys.readouterr()
    assert "the restart command ended with status 1" in said.err
    assert "no peak" in said.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-num-seqs", "8"], "give --ttft-ms, --tpot-ms or --e2e-ms"),
        (["--max-num-seqs", "8", "--ttft-ms", "9"], "needs --restart-command"),
        (["--max-num-seqs", "8", "--ttft-ms", "9", "--restart-command", "true", "--url", "http://10.1.1.1"],
         "Add --yes-load-test"),
        (["--max-num-seqs", "8", "--ttft-ms", "9", "--restart-command", "true", "--tool-path", "/no/such"],
         "there is no such program"),
    ],
)  # fmt: skip
def test_what_it_does_not_do_is_named(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("http://127.0.0.1:9", *options) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("tool", TOOLS)
def test_a_benchmark_that_is_missing_says_how_to_get_it(
    tool: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    options = ("--tool", tool, "--max-num-seqs", "8", "--ttft-ms", "9", "--restart-command", "true")
    assert tune("http://127.0.0.1:9", *options) == 2
    assert "pip install" in capsys.readouterr().err


def test_a_benchmark_that_fails_is_shown_with_its_last_words(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = program(tmp_path, "#!/bin/sh\necho out of luck\nexit 3\n")
    options = ("--tool-path", failing, "--max-num-seqs", "8", "--ttft-ms", "9", "--restart-command", "true")
    assert tune(engine, *options) == 2
    assert "ended with status 3:\nout of luck" in capsys.readouterr().err


def test_a_restart_command_that_is_none_is_named(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, says in (("restart 'vllm", "No closing quotation"), ("/nowhere/restart", "No such file")):
        options = ("--tool-path", sys.executable, "--max-num-seqs", "8", "--ttft-ms", "9")
        assert tune(engine, *options, "--restart-command", command) == 2
        assert says in capsys.readouterr().err


def test_a_page_that_breaks_off_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf")

        thread = threading.Thread(target=answer)
        thread.start()
        assert not what_if_engine.serves(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join(20)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--url", "ftp://x"),
        ("--url", "http://x:99999"),
        ("--url", "http://[x"),
        ("--rate", "0"),
        ("--rate", "nan"),
        ("--spread", "1"),
        ("--max-num-seqs", "0"),
    ],
)
def test_arguments_are_bounded(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tune("http://127.0.0.1:9", "--max-num-seqs", "8", option, value)
    assert f"argument {option}" in capsys.readouterr().err


def test_only_loopback_is_this_machine() -> None:
    own = ("http://127.0.0.1:8000", "http://localhost", "http://[::1]:80")
    assert all(map(what_if_engine.is_loopback, own))
    assert not any(map(what_if_engine.is_loopback, ("http://10.0.0.1", "http://gpu-1", "http://127.0.0.1.example.com")))


def test_what_if_prints_the_table_the_peak_and_the_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    observed = {
        **{name: ask()[name] for name in ("prompt_tokens", "output_tokens", "arrivals")},
        "max_num_seqs": 32, "max_num_batched_tokens": 1024, "kv_capacity_tokens": 40_000, "max_model_len_tokens": 4096,
        "ttft_ms": {"p50": 30.0}, "tpot_ms": {"p50": 15.0}, "measured_seconds": 5,
    }  # fmt: skip
    for name, document in (("ask", ask()), ("measured", {"observations": [observed], "tries_max": 20, "seeds": 1})):
        (tmp_path / name).write_text(json.dumps(document))
    status = main(["what-if", str(tmp_path / "ask"), "--calibrate", str(tmp_path / "measured")])
    said = capsys.readouterr().out
    assert status == 0
    for part in ("seqs / batched", "* peak: ", "TTFT ms: p50", "speed: base_seconds", "TPOT p50          15.0"):
        assert part in said


def test_what_if_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ask"
    file.write_text(json.dumps(ask(slo={})))
    assert main(["what-if", str(file)]) == 2
    assert "/slo: goodput needs an SLO" in capsys.readouterr().err
    assert main(["what-if"]) == 2
    for text in ("{", "[]"):
        file.write_text(text)
        with pytest.raises(SystemExit, match="JSON"):
            main(["what-if", str(file)])


def test_a_benchmark_that_takes_too_long_is_ended_with_all_that_it_started(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = tmp_path / "started"
    # What it starts holds its output open.
    stuck = program(tmp_path, "#!/bin/sh\nsleep 300 &\necho $! > " + str(started) + "\nsleep 300\n")
    slo = ("--ttft-ms", "500", "--max-num-seqs", "8", "--run-limit-seconds", "1")
    assert tune(engine, *slo, "--tool-path", stuck, "--restart-command", "true") == 2
    assert "took longer than 1 s; give fewer --requests" in capsys.readouterr().err
    assert not _runs(int(started.read_text()))


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
