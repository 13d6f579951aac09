"""Whether the diagnosis finds each of its twenty bottlenecks, nothing else beside it, and whether its levers help.

Real processes on 127.0.0.1: control plane with its worker, two nodes with agents and simulated GPUs, four simulated
engines in three pools, a gateway, and clients of five tenants. First a day on which nothing is wrong: nothing may be
found. Then one pathology after another (docs/diagnosis-lab.md): goodput before, the injection, the time until its
detector shows it and whatever else is shown, its first lever over REST, the time until it is over, goodput of the
healthy traffic then, with what was injected still there. At the end the fleet is put back, and the next one begins.

Found in time is within two windows. Engines, GPUs and clients are simulated; all that judges and acts is not.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.support.lab.clients import Clients
from bench.support.lab.drill import Drill, Result
from bench.support.lab.fleet import Lab, lab
from bench.support.lab.healthy import HEALTHY, JUDGED
from bench.support.lab.rows import BY_NAME
from bench.support.report import Targets, report
from simulator.tokenizer import Words, train_tokenizer

WINDOW_SECONDS, QUICK_WINDOW_SECONDS = 20, 15
INTERVAL_SECONDS, QUICK_INTERVAL_SECONDS = 4, 3
HEALTHY_SECONDS, QUICK_HEALTHY_SECONDS = 120.0, 40.0
MEASURE_SECONDS, QUICK_MEASURE_SECONDS = 25.0, 12.0
SETTLE_SECONDS = 10.0
FOUND_WINDOWS = 2.0
# The lab alone is one process a core, or two: with more the machine is what is measured.
BUSY_LOAD = 3.0


def matrix(results: Sequence[Result]) -> str:
    """A row for each injection, a column for each detector that fired: `1`, or `.` where it did not."""
    injected = [each.name for each in results]
    fired = {each.name: {*each.others, *([each.name] if each.found_seconds is not None else ())} for each in results}
    columns = [name for name in BY_NAME if any(name in found for found in fired.values()) or name in injected]
    width = max(map(len, injected), default=0)
    numbers = {name: number for number, name in enumerate(BY_NAME, 1)}
    lines = ["injected \\ found".ljust(width + 3) + " ".join(f"{numbers[name]:>2}" for name in columns)]
    for name in injected:
        cells = " ".join(" 1" if column in fired[name] else " ." for column in columns)
        lines.append(f"{name.ljust(width + 3)}{cells}")
    lines.append("columns: " + ", ".join(f"{numbers[name]} {name}" for name in columns))
    return "\n".join(lines)


def line(result: Result) -> str:
    """What came of one pathology, on one line."""
    found = "not found" if result.found_seconds is None else f"found {result.found_seconds:.0f} s"
    lever = f"lever {result.lever or 'none'}"
    cleared = "not over" if result.cleared_seconds is None else f"over {result.cleared_seconds:.0f} s"
    after = "-" if result.goodput_after is None else f"{result.goodput_after:.0%}"
    percent = "-" if result.goodput_percent is None else f"{result.goodput_percent:.0f} %"
    others = f"; also {', '.join(f'{name} {at:.0f} s' for name, at in result.others.items())}" if result.others else ""
    but = f"; {BY_NAME[result.name].but}" if result.name in BY_NAME and BY_NAME[result.name].but else ""
    busy = f"; {result.load_a_core:.0f} processes a core" if result.load_a_core >= BUSY_LOAD else ""
    wrong = f"; {result.problem}" if result.problem else ""
    goodput = f"goodput {result.goodput_before:.0%} → {result.goodput_injected:.0%} → {after}, {percent} of before"
    left = f"; {result.backlog_left} from before left" if result.backlog_left else ""
    gave_way = "".join(f"; {kind} {_answered(endings)}" for kind, endings in result.endings_after.items()
                       if kind not in JUDGED)  # fmt: skip
    return f"{result.name:20} {found:12} {lever:28} {cleared:11} {goodput}{gave_way}{left}{others}{but}{busy}{wrong}"


def _answered(endings: Mapping[str, int]) -> str:
    return f"{endings.get('good', 0)} of {sum(endings.values())}"


def figures_of(results: Sequence[Result], healthy: Result | None, window_seconds: int) -> dict[str, float]:
    found = [each for each in results if each.found_seconds is not None]
    in_time = [each for each in found if (each.found_seconds or 0) <= FOUND_WINDOWS * window_seconds]
    moved = [each for each in results if each.lever and not each.lever.startswith("advice")]
    promised = [each for each in moved if BY_NAME[each.name].goodput_percent is not None]
    returned = [each for each in promised if (each.goodput_percent or 0) >= (BY_NAME[each.name].goodput_percent or 0)]
    figures: dict[str, float] = {
        "injected": len(results),
        "found": len(found),
        "not_found_in_two_windows": len(results) - len(in_time),
        "others_found": sum(len(each.others) for each in results),
        "levers_applied": len(moved),
        "levers_that_did_not_clear": sum(each.cleared_seconds is None for each in moved),
        "goodput_not_returned": len(promised) - len(returned),
        "failed_drills": sum(bool(each.problem) for each in results),
        "most_processes_a_core": max((each.load_a_core for each in results), default=0.0),
    }
    if healthy is not None:
        figures["found_on_a_healthy_day"] = len(healthy.others)
    return figures


TARGETS: Targets = {
    "not_found_in_two_windows": ("at most", 0.0),
    "others_found": ("at most", 0.0),
    "levers_that_did_not_clear": ("at most", 0.0),
    "goodput_not_returned": ("at most", 0.0),
    "failed_drills": ("at most", 0.0),
    "found_on_a_healthy_day": ("at most", 0.0),
}


def run(made: Lab, names: Sequence[str], healthy_seconds: float, measure_seconds: float) -> Iterator[Result]:
    """Each as soon as it is known."""
    begun = time.monotonic()

    def say(step: str) -> None:
        print(f"  [{time.monotonic() - begun:6.0f} s] {step}", flush=True)

    words = Words(train_tokenizer())
    with Clients(made.gateway_url, made.keys, words) as clients:
        clients.start(HEALTHY)
        time.sleep(SETTLE_SECONDS)
        drill = Drill(made, clients, say, measure_seconds)
        if healthy_seconds:
            say(f"a healthy day of {healthy_seconds:.0f} s")
            yield drill.healthy(healthy_seconds)
        first = time.monotonic()
        for number, name in enumerate(names, 1):
            done, left = number - 1, len(names) - number + 1
            to_go = f", {left * (time.monotonic() - first) / done / 60:.0f} min to go" if done else ""
            say(f"{name} ({number} of {len(names)}{to_go})")
            yield drill.run(BY_NAME[name])


def main(argv: list[str] | None = None) -> int:
    """Prints a line a pathology, the confusion matrix, figures, one JSON object. Exit status 0 if all targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="extend", nargs="+", default=[], choices=list(BY_NAME), metavar="NAME",
                        help=f"only these of {', '.join(BY_NAME)}")  # fmt: skip
    parser.add_argument("--window-seconds", type=int, help="what detectors look back over "
                        f"({WINDOW_SECONDS}, with --quick {QUICK_WINDOW_SECONDS})")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a shorter window, measurements and healthy day")
    parser.add_argument("--no-healthy", action="store_true", help="no healthy day before")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder for the fleet's files, kept")
    arguments = parser.parse_args(argv)
    # Asked to end, it ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun = time.monotonic()
    quick = arguments.quick
    window_seconds = arguments.window_seconds or (QUICK_WINDOW_SECONDS if quick else WINDOW_SECONDS)
    interval_seconds = QUICK_INTERVAL_SECONDS if quick else INTERVAL_SECONDS
    healthy_seconds = 0.0 if arguments.no_healthy else QUICK_HEALTHY_SECONDS if quick else HEALTHY_SECONDS
    measure_seconds = QUICK_MEASURE_SECONDS if quick else MEASURE_SECONDS
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        # What was seen is told also where it ends early.
        try:
            with lab(folder, window_seconds, interval_seconds) as made:
                print(f"the lab is up after {time.monotonic() - begun:.0f} s", flush=True)
                for result in run(made, arguments.only or list(BY_NAME), healthy_seconds, measure_seconds):
                    results.append(result)
                    print(line(result), flush=True)
        finally:
            print(matrix(results), flush=True)
    healthy = results[0] if results and results[0].name == "healthy" else None
    drilled = [each for each in results if each is not healthy]
    figures = figures_of(drilled, healthy, window_seconds)
    figures["seconds"] = time.monotonic() - begun
    print(json.dumps({"drills": [each.described() for each in results]}))
    return report("diagnosis", __doc__, figures, {name: TARGETS[name] for name in TARGETS if name in figures})


if __name__ == "__main__":
    sys.exit(main())
