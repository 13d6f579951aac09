"""The sweep of a what-if on a real engine, loaded by a benchmark: what `headworks tune` does."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from controlplane.planner import what_if_child, what_if_engine
from controlplane.planner.what_if_tools import Load, Request, Tool, ToolTrouble, results
from policy.what_if import peak_of
from wire.sketches import bucket_of

LAST_WORDS_BYTES = 1500
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
Runs = Sequence[Sequence[Request]]


class Tuning(NamedTuple):
    """What to try. `slo_ms`: by ttft, tpot, e2e; those that are promised. Without a `restart_command` the engine stays
    as it is; it has the only settings that are given.
    """

    tool: Tool
    program: str
    load: Load
    max_num_seqs: list[int]
    max_num_batched_tokens: list[int]
    repeats: int
    slo_ms: dict[str, int]
    restart_command: str
    start_limit_seconds: float
    run_limit_seconds: float


def tune(tuning: Tuning, told: Callable[[str], None]) -> dict[str, Any]:
    """Measure every point; a report in the form of a what-if, with observations to calibrate by. Raises ToolTrouble."""
    found = []
    for seqs in tuning.max_num_seqs:
        for batched in tuning.max_num_batched_tokens:
            told(f"max_num_seqs {seqs:,}, max_num_batched_tokens {batched:,}")
            found.append(_point(tuning, {"max_num_seqs": seqs, "max_num_batched_tokens": batched}, told))
    slo = {f"{name}_ms": value for name, value in tuning.slo_ms.items()}
    return {"points": found, "peak": peak_of(found), "seeds": tuning.repeats, "slo": slo, "tool": tuning.tool.name}


def missed(request: Request, slo_ms: dict[str, int]) -> str | None:
    """What a request missed first; None: it is good."""
    if not request.ok:
        return "refused"
    seconds = {"ttft": request.ttft, "tpot": request.tpot, "e2e": request.e2e}
    for name, bound_ms in slo_ms.items():
        took = seconds[name]
        if took is not None and took * 1000 > bound_ms:
            return name
    return None


def goodput(requests: Sequence[Request], slo_ms: dict[str, int]) -> float:
    """Good requests a second, from the first one's start to the last one's end."""
    began = min(request.started_at for request in requests)
    ended = max(request.started_at + request.e2e for request in requests)
    return sum(missed(request, slo_ms) is None for request in requests) / max(ended - began, 1e-3)


def _point(tuning: Tuning, settings: dict[str, int], told: Callable[[str], None]) -> dict[str, Any]:
    whole = {**settings, "replicas": 1, "kv_capacity_tokens": None, "max_concurrency": None}
    cannot = _restarted(tuning, settings)
    if cannot:
        told(f"  {cannot}")
        return {"settings": whole, "cannot": cannot, "loads": [], "observation": None}
    runs = []
    before, began = what_if_engine.told_by(tuning.load.url), time.monotonic()
    for repeat in range(tuning.repeats):
        requests = _run(tuning, repeat)
        told(f"  run {repeat + 1}: goodput {goodput(requests, tuning.slo_ms):.2f} requests/s")
        runs.append(requests)
    after = what_if_engine.told_by(tuning.load.url)
    load = _of_runs(runs, tuning.slo_ms)
    preempted = max(0.0, after.preemptions - before.preemptions)
    load["preemptions_per_minute"] = preempted / (time.monotonic() - began) * 60
    observed = _observation(tuning, settings, runs, load, after.kv_capacity_tokens)
    return {"settings": whole, "cannot": None, "loads": [load], "observation": observed}


def _restarted(tuning: Tuning, settings: dict[str, int]) -> str | None:
    """Why the engine does not serve with these settings."""
    if settings["max_num_batched_tokens"] < settings["max_num_seqs"]:
        return "max_num_batched_tokens must be at least max_num_seqs"
    if not tuning.restart_command:
        return None
    return what_if_engine.restart(tuning.restart_command, tuning.load.url, settings, tuning.start_limit_seconds)


def _run(tuning: Tuning, repeat: int) -> list[Request]:
    with tempfile.TemporaryDirectory(prefix="headworks-tune-") as folder:
        file = Path(folder) / "result.json"
        words = [tuning.program, *tuning.tool.arguments(tuning.load._replace(seed=tuning.load.seed + repeat), file)]
        status, said = _ended(words, tuning)
        if status:
            raise ToolTrouble(f"{tuning.tool.name} ended with status {status}:\n{said}")
        return results(tuning.tool, file)


def _ended(words: list[str], tuning: Tuning) -> tuple[int, str]:
    """Its status and its last words. It and all that it started are ended, also where somebody interrupts."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = child.wait(tuning.run_limit_seconds)
        except subprocess.TimeoutExpired:
            message = f"{tuning.tool.name} took longer than {tuning.run_limit_seconds:.0f} s; give fewer --requests"
            raise ToolTrouble(message) from None
        finally:
            what_if_child.end(child)
        output.seek(max(0, output.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
        return status, output.read().decode(errors="replace").strip()


def _of_runs(runs: Runs, slo_ms: dict[str, int]) -> dict[str, Any]:
    goodputs = [goodput(requests, slo_ms) for requests in runs]
    number = sum(map(len, runs))
    kinds = Counter(missed(request, slo_ms) for requests in runs for request in requests)
    return {
        "load": 1.0,
        "rate_per_second": fmean(map(_rate, runs)),
        "goodput": {"mean": fmean(goodputs), "min": min(goodputs), "max": max(goodputs)},
        "good_share": kinds[None] / number,
        "missed": {name: kinds[name] / number for name in ("refused", "ttft", "tpot", "e2e")},
        **{f"{name}_ms": _latencies(runs, name) for name in ("ttft", "tpot", "e2e")},
    }


def _rate(requests: Sequence[Request]) -> float:
    starts = [request.started_at for request in requests]
    return (len(starts) - 1 or 1) / max(max(starts) - min(starts), 1e-3)


def _latencies(runs: Runs, name: str) -> dict[str, float]:
    """In ms, of all runs together, by nearest rank."""
    answered = (getattr(request, name) for requests in runs for request in requests if request.ok)
    values = sorted(seconds * 1000 for seconds in answered if seconds is not None)
    if not values:
        return {}
    ranks = {label: values[math.ceil(share * len(values)) - 1] for label, share in QUANTILES.items()}
    return {"mean": fmean(values), **ranks}


def _observation(
    tuning: Tuning, settings: dict[str, int], runs: Runs, load: dict[str, Any], kv_capacity_tokens: int
) -> dict[str, Any]:
    """In the form of wire/calibration.py."""
    answered = [request for requests in runs for request in requests if request.ok]
    longest = max(request.prompt_tokens + request.output_tokens for request in answered)
    return {
        "name": f"max_num_seqs {settings['max_num_seqs']}, max_num_batched_tokens {settings['max_num_batched_tokens']}",
        "prompt_tokens": sorted(Counter(bucket_of(request.prompt_tokens) for request in answered).items()),
        "output_tokens": sorted(Counter(bucket_of(request.output_tokens) for request in answered).items()),
        "arrivals": {"rate_per_second": load["rate_per_second"]},
        "kv_capacity_tokens": kv_capacity_tokens,
        "max_model_len_tokens": min(2 * longest, kv_capacity_tokens // 16 * 16),
        "ttft_ms": load["ttft_ms"],
        "tpot_ms": load["tpot_ms"],
        "measured_seconds": min(3600.0, max(10.0, tuning.load.requests / tuning.load.rate_per_second)),
        **settings,
    }
