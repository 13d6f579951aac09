"""Running a job in a child process, which ends by itself in time and is killed where it does not.

Libraries that make their own connections run there, where the interpreter itself refuses addresses (child_main.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

from controlplane import settings_rows as rows
from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.receivers.contract import Job

# Nothing else of the environment goes along: no secret, no proxy.
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_ENVIRONMENT = ("PATH", "LANG", "TZ", *_CERTIFICATES)
# -I: nothing of the user's or of the working directory is imported.
_ARGV = (sys.executable, "-I", "-B", "-m", "controlplane.alerts.receivers.child_main")


def run(job: Job) -> Outcome:
    """Carry it out, in HEADWORKS_WEBHOOK_TIMEOUT_SECONDS at most; how that ended."""
    limit_seconds = rows.WEBHOOK_TIMEOUT_SECONDS.read()
    server = _mail_server() if job.kind == "smtp" else {}
    if server and not (server["host"] and server["from"]):
        return Outcome(Reason.NOT_SET_UP, f"set {rows.SMTP_HOST.name} and {rows.SMTP_FROM.name} first")
    environment = _environment()
    asked = {
        "kind": job.kind,
        "given": {**job.given, **server},
        "allowed": [str(network) for network in rows.WEBHOOK_ALLOWED_NETWORKS.read()],
        "limit_seconds": limit_seconds,
        "readable": [environment[name] for name in _CERTIFICATES if name in environment],
    }
    try:
        done = subprocess.run(
            _ARGV,
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_seconds,
            env=environment,
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(Reason.TIMED_OUT, f"not done within {limit_seconds} s")
    try:
        return _read(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        return Outcome(Reason.FAILED_HERE, f"the child process ended with {done.returncode}")


def _read(ended: dict[str, Any]) -> Outcome:
    pause = None if ended["retry_after"] is None else timedelta(seconds=ended["retry_after"])
    return Outcome(Reason(ended["reason"]), ended["text"], pause, ended["status"], ended["said"])


def _mail_server() -> dict[str, Any]:
    return {
        "host": rows.SMTP_HOST.read(),
        "port": rows.SMTP_PORT.read(),
        "security": rows.SMTP_SECURITY.read(),
        "user": rows.SMTP_USER.read(),
        "password": rows.SMTP_PASSWORD.read(),
        "from": rows.SMTP_FROM.read(),
    }


def _environment() -> dict[str, str]:
    whole = {**os.environ}
    kept = {name: whole[name] for name in _ENVIRONMENT if name in whole}
    if "SSL_CERT_FILE" in kept:
        # `requests` has a name of its own for it.
        kept["REQUESTS_CA_BUNDLE"] = kept["SSL_CERT_FILE"]
    return kept
