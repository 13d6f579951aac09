"""Alerting rules: 200 of them evaluated on 10,000 series, beside a real Prometheus with the same group.

The embedded store holds ten minutes of 100 nodes with 8 GPUs each at 15 s, packed but for the last samples. The rules
are thresholds, aggregations, rates, quantiles and joins on 100 to 800 series each, a tenth on all 10,000; another tenth
fires, for the 8 GPUs of 5 nodes. A round is what the worker does every 15 s: each rule is claimed, asked, and what came
of it written into the database, with new samples before each round. The first round opens the alerts; `round` is the
median of the others, in which values change and states do not.

The database is SQLite, or the one that HEADWORKS_DATABASE_URL names, which must be empty. Debian's Prometheus, where it
is installed, gets the same samples by remote write, and its own figure is the time of its group's evaluation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

from bench.support import ruled_fleet as fleet
from bench.support.control_plane import wait_for
from bench.support.fleet_metrics import Slice
from bench.support.metric_servers import installed, prometheus
from bench.support.report import Targets, report

ROUNDS = 5
INTERVAL_SECONDS = 15
TARGETS: Targets = {"round_seconds": ("at most", 5.0), "first_round_seconds": ("at most", 5.0)}
Figures = dict[str, float]


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds, and no Prometheus beside")
    quick = parser.parse_args(argv).quick
    now_ms = int(time.time()) * 1000
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as name:
        figures = own(Path(name), now_ms, 2 if quick else ROUNDS)
        if not quick and "prometheus" in installed():
            figures |= beside(Path(name), now_ms)
    figures["load_average"] = os.getloadavg()[0]
    return report("rules", __doc__, figures, TARGETS)


def own(folder: Path, now_ms: int, rounds: int) -> Figures:
    """Of our worker, in this process."""
    os.environ |= {"HEADWORKS_DATA_DIR": str(folder), "HEADWORKS_RULE_PACK": "off", "HEADWORKS_PROMETHEUS_URL": ""}
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    from controlplane.cli import prepare

    prepare()
    from controlplane.alerts.models import Alert, Rule, RuleSeries
    from controlplane.alerts.rule_loop import evaluate_due
    from controlplane.alerts.services import rule_files
    from controlplane.core.changes import SYSTEM, unit_of_work
    from controlplane.telemetry.store.database import FILE_NAME
    from controlplane.telemetry.store.packing import pack

    with unit_of_work(SYSTEM, "a benchmark") as unit:
        rule_files.take(unit, fleet.rule_file())
    store, slices = folder / FILE_NAME, list(fleet.samples(now_ms))
    series = written(store, slices)
    pack(store, 2**60)
    took, cpu = [], []
    for number in range(rounds):
        at_ms = now_ms + number * INTERVAL_SECONDS * 1000
        written(store, list(fleet.later(slices, at_ms)))
        begun, used = time.perf_counter(), time.process_time()
        evaluated = evaluate_due(lambda at_ms=at_ms: datetime.fromtimestamp(at_ms / 1000, UTC))  # type: ignore[misc]
        took.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - used)
        failed = Rule.objects.exclude(last_error="").values_list("name", "last_error").first()
        if evaluated != fleet.RULES or failed:
            raise RuntimeError(f"{evaluated} rules were evaluated; {failed}")
    return {
        "series": series,
        "rules": fleet.RULES,
        "first_round_seconds": took[0],
        "round_seconds": statistics.median(took[1:]),
        "round_cpu_seconds": statistics.median(cpu[1:]),
        "series_active": RuleSeries.objects.count(),
        "alerts_firing": Alert.objects.filter(state="firing").count(),
    }


def written(store: Path, slices: list[Slice]) -> int:
    """Straight into the store's file; how many series."""
    from controlplane.telemetry.store.admission import Window
    from controlplane.telemetry.store.writer import Owner, writer_of
    from wire.write_body import key_of

    window, writer, series = Window(0, 2**60, 0), writer_of(store), 0
    for part in slices:
        owner, keys = Owner("node", part.owner), [key_of(labels) for labels in part.labels]
        fresh = {key: labels for key, labels in zip(keys, part.labels, strict=True) if key not in writer.known(owner)}
        counts, times = [len(part.times_ms)] * len(keys), list(part.times_ms) * len(keys)
        writer.write(owner, keys, fresh, (counts, times, part.values.ravel().tolist()), window, len(keys))
        series += len(keys)
    return series


def beside(folder: Path, now_ms: int) -> Figures:
    """How long a real Prometheus takes for the group, once its rules fire."""
    (folder / "rules.json").write_text(json.dumps(fleet.rule_file()))
    config = {"global": {"evaluation_interval": f"{INTERVAL_SECONDS}s"}, "rule_files": ["rules.json"]}
    with prometheus(folder, config) as server:
        slices = list(fleet.samples(now_ms))
        server.fill(slices)
        took: list[float] = []

        def evaluated() -> bool:
            server.fill(fleet.later(slices, int(time.time() * 1000)))
            with urlopen(f"{server.url}/api/v1/rules") as answer:
                (group,) = json.load(answer)["data"]["groups"]
            if any(rule["state"] == "firing" for rule in group["rules"]) and group["evaluationTime"] not in took:
                took.append(group["evaluationTime"])
            time.sleep(1)
            return len(took) == 2

        wait_for(evaluated, "two evaluations of Prometheus")
    return {"prometheus_round_seconds": took[-1]}


if __name__ == "__main__":
    sys.exit(main())
