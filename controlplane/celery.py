"""The worker and the beat: Celery on Redis or, embedded, one process on a broker of files."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from celery import Celery
from celery.beat import EmbeddedService
from celery.schedules import crontab
from django.conf import settings

# Without Redis: one machine, one worker, a broker of files.
EMBEDDED = not settings.HEADWORKS_REDIS_URL

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
        "prune-revisions": {"task": "controlplane.configs.tasks.prune_revisions", "schedule": crontab(minute="17")},
    },
)
if EMBEDDED:
    _files = settings.DATA_DIR / "broker"
    _files.mkdir(parents=True, exist_ok=True, mode=0o700)
    app.conf.broker_transport_options = {
        "data_folder_in": str(_files),
        "data_folder_out": str(_files),
        "control_folder": str(_files / "control"),
    }
app.autodiscover_tasks()


# In memory: the schedule is above, and a file of it could be torn by a kill.
_SCHEDULER = "celery.beat:Scheduler"


def run_worker() -> None:
    """Work until SIGTERM. Embedded, beat is a thread of this process, so that a kill ends both."""
    if EMBEDDED:
        EmbeddedService(app, thread=True, scheduler_cls=_SCHEDULER).start()
    app.worker_main(
        ["worker", "--pool=threads", "--concurrency=2", "--loglevel=INFO", "--without-gossip", "--without-mingle"]
    )


def run_beat() -> None:
    """Put scheduled work on the broker until SIGTERM; with Redis one process does so for all workers."""
    app.Beat(scheduler=_SCHEDULER, loglevel="INFO").run()
