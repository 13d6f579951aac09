"""An alert storm: 5,000 series of five rules fire at once. How many messages that makes, and whether one is lost.

In one process, on SQLite and, where Debian's is installed, on PostgreSQL: the results of five rules are stored as the
worker stores them, 1,000 series each in two pools, with the inhibitions that Headworks brings; the worker's look writes
the messages to three receivers. An XID comes in the middle of it. Half of the series end and others come, which is told
after the group interval; then all end. Nothing is sent: what is written is what counts. `lost_alerts` are those that a
receiver was not told of.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from bench.support.memory import resident_mib
from bench.support.postgres import installed, postgres
from bench.support.report import Targets, report

RULES, SERIES, POOLS, RECEIVERS = 5, 1000, 2, 3
Figures = dict[str, float]
# By database.
_BOUNDS: Targets = {
    "lost_alerts": ("at most", 0),
    # A message a rule, pool and receiver; and the XID.
    "first_messages": ("at most", RULES * POOLS * RECEIVERS),
    "open_seconds": ("at most", 10),
    "tell_seconds": ("at most", 5),
    "event_seconds": ("at most", 1),
    "messages_left_unended": ("at most", 0),
}


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="measure on the database of HEADWORKS_DATABASE_URL alone")
    if parser.parse_args(argv).here:
        print(json.dumps(measured()))
        return 0
    figures: Figures = {f"sqlite_{name}": value for name, value in _measured_on("").items()}
    if programs := installed():
        with postgres(programs) as url:
            figures |= {f"postgresql_{name}": value for name, value in _measured_on(url).items()}
    targets = {f"{base}_{name}": bound for base in ("sqlite", "postgresql") for name, bound in _BOUNDS.items()}
    held = {name: bound for name, bound in targets.items() if name in figures}
    return report("alert_storm", __doc__, figures, held)


def _measured_on(database_url: str) -> Figures:
    """In a process of its own: Django takes one database."""
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as folder:
        own = {"HEADWORKS_DATABASE_URL": database_url, "HEADWORKS_REDIS_URL": "", "HEADWORKS_DATA_DIR": folder}
        command = [sys.executable, "-m", "bench.alert_storm", "--here"]
        answer = subprocess.run(command, env={**os.environ, **own}, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(answer.stdout.splitlines()[-1])
    return figures


def measured() -> Figures:
    """The storm, on this process' database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    # The apps are loaded now.
    from bench.support.storm import Storm

    storm, figures, before = Storm(RULES, POOLS, RECEIVERS), Figures(), resident_mib(os.getpid())
    with _timed(figures, "open_seconds"):
        storm.fire(range(SERIES))
    with _timed(figures, "event_seconds"):
        storm.xid()
    with _timed(figures, "tell_seconds"):
        figures["first_messages"] = storm.look(timedelta(seconds=11))
    figures |= {"alerts": storm.alerts(), "incidents": storm.incidents(), "lost_alerts": storm.untold()}
    with _timed(figures, "change_seconds"):
        storm.fire(range(SERIES // 2, SERIES + SERIES // 2))
    figures["changed_messages"] = storm.look(timedelta(minutes=6))
    figures["lost_alerts"] += storm.untold()
    with _timed(figures, "end_seconds"):
        storm.fire(range(0))
    figures |= {"messages": storm.messages(), "messages_left_unended": storm.unended()}
    return {**figures, "memory_grew_mib": resident_mib(os.getpid()) - before}


@contextmanager
def _timed(seconds: Figures, name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
