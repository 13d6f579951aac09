"""`headworks what-if` and `headworks tune`: a sweep of engine settings, in virtual time or on a real engine."""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from controlplane.config_commands import Shell
from controlplane.planner import what_if_child, what_if_engine
from controlplane.planner.what_if_table import calibration_lines, lines
from controlplane.planner.what_if_tools import TOOLS, Load, ToolTrouble, found
from controlplane.planner.what_if_tune import Tuning, tune
from wire.settings import whole_number
from wire.what_if import RATE_MAX, SETTING_MAX

LIMIT_SECONDS = 24 * 3600
# A report of `tune` has each point's lengths.
FILE_MAX_BYTES = 32 * 2**20
_TROUBLE = 2


def add_to(commands: Any, shell: Shell) -> None:
    """Add both commands to those of the parser. `shell` opens the database, for a pool of it."""
    _add_what_if(commands, shell)
    _add_tune(commands)


def _add_what_if(commands: Any, shell: Shell) -> None:
    text = "Try engine settings in virtual time: goodput of each, the peak, and why it is there."
    parser = commands.add_parser("what-if", help=text, description=text)
    parser.add_argument("ask", nargs="?", help="a JSON file of what to try (docs/what-if.md); -: standard input")
    parser.add_argument(
        "--calibrate", metavar="FILE", help="find the speed first, from what was measured: JSON, or a report of `tune`"
    )
    parser.add_argument("--pool", help="take what the file does not say from what was measured of this pool")
    parser.add_argument("--days", type=_whole(1, 31), default=7, help="measured over so many (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the report there too")
    parser.set_defaults(run=partial(_what_if, shell))


def _add_tune(commands: Any) -> None:
    text = "Try engine settings on a real engine, through vLLM's own benchmark or GuideLLM."
    parser = commands.add_parser("tune", help=text, description=text)
    add = parser.add_argument
    add("--url", type=_url, required=True, help="of the engine, such as http://127.0.0.1:8000")
    add("--model", required=True, help="the name that it serves")
    add("--tokenizer", help="folder or name of the model's tokenizer (default: the model's name)")
    add("--tool", choices=sorted(TOOLS), default="vllm", help="the benchmark (default: %(default)s)")
    add("--tool-path", metavar="FILE", help="its program, where it is not on PATH")
    add("--rate", type=_positive, required=True, help="requests a second")
    add("--requests", type=_whole(2, 100_000), default=200, help="of a run (default: %(default)s)")
    add("--prompt-tokens", type=_whole(1, 1_000_000), required=True, help="mean length of prompts")
    add("--output-tokens", type=_whole(2, 1_000_000), required=True, help="mean length of answers")
    add("--spread", type=_share, default=0.5, help="lengths lie so far around their mean (default: %(default)s)")
    add("--repeats", type=_whole(1, 20), default=3, help="runs of each point (default: %(default)s)")
    for name in ("ttft", "tpot", "e2e"):
        add(f"--{name}-ms", type=_whole(1, 3_600_000), help=f"SLO: a request is good up to this {name.upper()}")
    add("--max-num-seqs", type=_list, required=True, metavar="N,N,…", help="values to try")
    add("--max-num-batched-tokens", type=_list, required=True, metavar="N,N,…", help="values to try")
    add(
        "--restart-command", default="", metavar="COMMAND",
        help="restarts the engine, with {max_num_seqs} and {max_num_batched_tokens} put in, and returns once the old "
        "one has stopped; no shell reads it. Needed for more than one point",
    )  # fmt: skip
    add("--start-limit-seconds", type=_whole(1, 7200), default=600, help="for a restart (default: %(default)s)")
    add("--run-limit-seconds", type=_whole(1, 86_400), default=1800, help="for a run (default: %(default)s)")
    add("--yes-load-test", action="store_true", help="load an engine that is not on this machine")
    add("--json", metavar="FILE", help="write the report there too; `what-if --calibrate` takes it")
    parser.set_defaults(run=_tune)


def _what_if(shell: Shell, arguments: argparse.Namespace) -> int:
    if arguments.ask is None and arguments.calibrate is None and arguments.pool is None:
        return _trouble("give a file to try, --pool, or --calibrate")
    ask = {} if arguments.ask is None else _document(arguments.ask)
    measured = None if arguments.calibrate is None else measured_in(_document(arguments.calibrate))
    if arguments.pool is not None:
        ask, of_pool = _of_pool(shell, arguments, ask)
        measured = measured or of_pool
    try:
        calibrated: dict[str, Any] = {}
        if measured is not None:
            calibrated = what_if_child.run("simulator.calibrate", measured, LIMIT_SECONDS, _heard)
        if not ask:
            return _shown({"calibration": calibrated}, list(calibration_lines(calibrated)), arguments.json)
        if calibrated:
            ask["speed"] = calibrated["speed"]
        report = what_if_child.run("simulator.what_if", ask, LIMIT_SECONDS, _heard)
    except what_if_child.ChildFailed as error:
        return _trouble(str(error))
    report["calibration"] = calibrated or None
    return _shown(report, list(lines(report)), arguments.json)


def _of_pool(
    shell: Shell, arguments: argparse.Namespace, ask: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The ask, with what was measured of the pool, and what its engines' speed is found from; says what is assumed."""
    with shell("read from the shell", True):
        from django.utils import timezone

        from controlplane.planner.what_if_asked import asked_of

        asked = asked_of({"pool": arguments.pool, "days": arguments.days, "ask": ask}, timezone.now())
    for words in asked.assumed:
        print(f"taken for granted: {words}", file=sys.stderr)
    return asked.ask, asked.calibration


def measured_in(document: dict[str, Any]) -> dict[str, Any]:
    """What a calibration is made of; of a report of `tune`, what it observed."""
    if "points" not in document:
        return document
    return {"observations": [each["observation"] for each in document["points"] if each.get("observation")]}


def _tune(arguments: argparse.Namespace) -> int:
    slo_ms = {name: value for name in ("ttft", "tpot", "e2e") if (value := getattr(arguments, f"{name}_ms"))}
    if not slo_ms:
        return _trouble("goodput needs an SLO; give --ttft-ms, --tpot-ms or --e2e-ms")
    if not arguments.restart_command and len(arguments.max_num_seqs) * len(arguments.max_num_batched_tokens) > 1:
        return _trouble("more than one point needs --restart-command; or give the one value of each that it runs with")
    if not what_if_engine.is_loopback(arguments.url) and not arguments.yes_load_test:
        return _trouble(f"{arguments.url} is not on this machine: its users would feel the load. Add --yes-load-test")
    tool = TOOLS[arguments.tool]
    load = Load(
        url=arguments.url, model=arguments.model, tokenizer=arguments.tokenizer or arguments.model,
        rate_per_second=arguments.rate, requests=arguments.requests, prompt_tokens=arguments.prompt_tokens,
        output_tokens=arguments.output_tokens, spread=arguments.spread, seed=1,
    )  # fmt: skip
    try:
        tuning = Tuning(
            tool, found(tool, arguments.tool_path), load, arguments.max_num_seqs, arguments.max_num_batched_tokens,
            arguments.repeats, slo_ms, arguments.restart_command, arguments.start_limit_seconds,
            arguments.run_limit_seconds,
        )  # fmt: skip
        report = tune(tuning, lambda said: print(said, file=sys.stderr, flush=True))
    except ToolTrouble as error:
        return _trouble(str(error))
    return _shown(report, list(lines(report)), arguments.json)


def _shown(report: dict[str, Any], text: list[str], file: str | None) -> int:
    print("\n".join(text))
    if file is not None:
        try:
            Path(file).write_text(json.dumps(report))
        except OSError as error:
            return _trouble(f"{file}: {error.strerror}")
    return 0


def _heard(progress: dict[str, Any]) -> bool:
    if sys.stderr.isatty() and progress:
        print(f"\r{' '.join(f'{name} {value}' for name, value in progress.items())}\033[K", end="", file=sys.stderr)
    return True


def _document(file: str) -> dict[str, Any]:
    """A JSON object. Ends the program where there is none."""
    try:
        if file == "-":
            text = sys.stdin.buffer.read(FILE_MAX_BYTES + 1)
        else:
            with open(file, "rb") as opened:
                text = opened.read(FILE_MAX_BYTES + 1)
        if len(text) > FILE_MAX_BYTES:
            raise SystemExit(f"headworks: {file}: give at most {FILE_MAX_BYTES} bytes")
        document = json.loads(text)
    except OSError as error:
        raise SystemExit(f"headworks: {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SystemExit(f"headworks: {file}: this is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise SystemExit(f"headworks: {file}: give a JSON object")
    return document


def _trouble(message: str) -> int:
    print(f"headworks: {message}", file=sys.stderr)
    return _TROUBLE


def _whole(lowest: int, highest: int) -> Any:
    read = whole_number(lowest, highest)

    def checked(text: str) -> int:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _list(text: str) -> list[int]:
    return sorted({_whole(1, SETTING_MAX)(part) for part in text.split(",")})


def _positive(text: str) -> float:
    return _number(text, RATE_MAX, "a rate above 0")


def _share(text: str) -> float:
    return _number(text, 0.95, "a share above 0")


def _number(text: str, highest: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= highest:
        raise argparse.ArgumentTypeError(f"give {what}, up to {highest:,g}, not {text!r}")
    return value


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError(f"give http://host:port, not {text!r}")
    return text.rstrip("/")
