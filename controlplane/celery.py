"""The worker and the beat: Celery on Redis or, embedded, one process on a broker of files."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from typing import Any

from celery import Celery
from celery.beat import EmbeddedService, Scheduler
from celery.schedules import crontab
from celery.signals import heartbeat_sent
from django.conf import settings

from controlplane import redis_broker
from controlplane import settings_rows as rows

# Without Redis: one machine, one worker, a broker of files.
EMBEDDED = not settings.HEADWORKS_REDIS_URL

redis_broker.use()
app = Celery("headworks")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_ignore_result=True,
    # On Redis a killed worker's task runs again. The broker of files forgets it, so a task only ever hastens what
    # rows in the database say must be done.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    beat_schedule={
        "compact-metrics": {"task": "controlplane.telemetry.tasks.compact_metrics", "schedule": 60.0},
        # A commit asks for it at once; this finds what is to be tried again, and what a worker that died had begun.
        "deliver": {"task": "controlplane.alerts.tasks.deliver", "schedule": 2.0, "options": {"expires": 10}},
        # Each incident says itself when it is looked at.
        "notify": {"task": "controlplane.alerts.tasks.notify", "schedule": 2.0, "options": {"expires": 10}},
        # Each rule says itself when it is due (HEADWORKS_RULE_INTERVAL_SECONDS).
        "evaluate-rules": {
            "task": "controlplane.alerts.tasks.evaluate_rules",
            "schedule": 3.0,
            "options": {"expires": 10},
        },
        # Each group says itself when it is due (HEADWORKS_RECORDING_INTERVAL_SECONDS).
        "record-series": {
            "task": "controlplane.telemetry.tasks.record_series",
            "schedule": 5.0,
            "options": {"expires": 10},
        },
        # The row says when it is time (HEADWORKS_OWN_SERIES_INTERVAL_SECONDS).
        "record-own-series": {
            "task": "controlplane.telemetry.tasks.record_own_series",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "forget-decisions": {
            "task": "controlplane.telemetry.tasks.forget_decisions",
            "schedule": 60.0,
            "options": {"expires": 50},
        },
        "forget-expired-limits": {"task": "controlplane.tenants.tasks.forget_expired_limits", "schedule": 60.0},
        "forget-expired-overrides": {
            "task": "controlplane.breakers.tasks.forget_expired_overrides",
            "schedule": crontab(minute="7"),
        },
        "expire-acts": {"task": "controlplane.fleet.tasks.expire_acts", "schedule": 60.0},
        "prune-acts": {"task": "controlplane.fleet.tasks.prune_acts", "schedule": crontab(minute="47")},
        "prune-alerts": {"task": "controlplane.alerts.tasks.prune", "schedule": crontab(minute="37")},
        "settle-incidents": {"task": "controlplane.alerts.tasks.settle_incidents", "schedule": 60.0},
        "measure-pools": {
            "task": "controlplane.configs.tasks.measure_pools",
            "schedule": 60.0,
            "options": {"expires": 50},
        },
        # The stage says itself when it is due (HEADWORKS_STAGE_LOOK_SECONDS).
        "watch-stage": {
            "task": "controlplane.configs.tasks.watch_stage",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        # A commit asks for it at once; this finds what was due by time, and what a worker that died had begun.
        "work-on-batches": {
            "task": "controlplane.batches.tasks.work",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        "prune-batches": {"task": "controlplane.batches.tasks.prune_batches", "schedule": crontab(minute="57")},
        # A write asks for it at once; this finds what time, agents and gateways did.
        "look-at-rollouts": {
            "task": "controlplane.rollouts.tasks.look",
            "schedule": 1.0,
            "options": {"expires": 10},
        },
        # The round says itself when it is due (HEADWORKS_DIAGNOSIS_INTERVAL_SECONDS).
        "look-for-bottlenecks": {
            "task": "controlplane.diagnosis.tasks.look",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        "prune-findings": {"task": "controlplane.diagnosis.tasks.prune", "schedule": crontab(minute="23")},
        "look-at-remediations": {
            "task": "controlplane.remediation.tasks.look",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        "measure-scale": {
            "task": "controlplane.scaling.tasks.measure",
            "schedule": 5.0,
            "options": {"expires": 10},
        },
        "retire-idle-versions": {
            "task": "controlplane.routing.tasks.retire_idle_versions",
            "schedule": crontab(minute="27"),
        },
        "forget-answers": {"task": "controlplane.core.tasks.forget_answers", "schedule": 600.0},
        "forget-sessions": {"task": "controlplane.core.tasks.forget_sessions", "schedule": 600.0},
        "run-what-ifs": {
            "task": "controlplane.planner.tasks.run_what_ifs",
            "schedule": 2.0,
            "options": {"expires": 10},
        },
        "prune-what-ifs": {"task": "controlplane.planner.tasks.prune_what_ifs", "schedule": crontab(minute="27")},
        "prune-revisions": {"task": "controlplane.configs.tasks.prune_revisions", "schedule": crontab(minute="17")},
    },
)
if EMBEDDED:
    _files = settings.DATA_DIR / "broker"
    _files.mkdir(parents=True, exist_ok=True, mode=0o700)
    app.conf.broker_transport = "controlplane.core.file_broker:Transport"
    app.conf.broker_transport_options = {
        "data_folder_in": str(_files),
        "data_folder_out": str(_files),
        "control_folder": str(_files / "control"),
        # Seconds: a commit that wakes the worker waits for the next look, by default for up to 1.
        "polling_interval": 0.2,
    }
else:
    # A commit wakes the worker: who wrote must not wait for a Redis that is away.
    app.conf.broker_transport_options = {"socket_connect_timeout": 2}
app.autodiscover_tasks()


@heartbeat_sent.connect  # type: ignore[untyped-decorator]
def _renew_pulse(**_: Any) -> None:
    """Called for each heartbeat of a worker, and each task of the beat, that the broker took."""
    if file := rows.PULSE_FILE.read():
        file.touch()


class _Scheduler(Scheduler):  # type: ignore[misc]
    """In memory: the schedule is above, and a file of it could be torn by a kill."""

    def apply_async(self, *args: Any, **options: Any) -> Any:
        sent = super().apply_async(*args, **options)
        _renew_pulse()
        return sent


# Each task that can take long runs in one thread at most, and there are ten of them: some are left for what is short,
# such as a page that goes out.
_THREADS = 14


def run_worker() -> None:
    """Work until SIGTERM. Embedded, beat is a thread of this process, so that a kill ends both."""
    if EMBEDDED:
        EmbeddedService(app, thread=True, scheduler_cls=_Scheduler).start()
    threads = ["--pool=threads", f"--concurrency={_THREADS}"]
    app.worker_main(["worker", *threads, "--loglevel=INFO", "--without-gossip", "--without-mingle"])


def run_beat() -> None:
    """Put scheduled work on the broker until SIGTERM; with Redis one process does so for all workers."""
    app.Beat(scheduler=_Scheduler, loglevel="INFO").run()
