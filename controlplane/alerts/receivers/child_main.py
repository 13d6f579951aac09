"""The child process that carries a job out: `python -m controlplane.alerts.receivers.child_main`, JSON in, JSON out."""

from __future__ import annotations

import json
import mimetypes
import os
import resource
import signal
import sys
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any, NamedTuple

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.receivers.guard import AddressRefused, Guard

# Room for Python and a library; a service's endless answer must not take the machine's.
_MEMORY_BYTES = 1 << 30
# A process whose parent was killed must not outlive its message by much.
_OWN_LIMIT_SECONDS = 2


class Work(NamedTuple):
    """What is to be done, and in how many seconds."""

    kind: str
    given: dict[str, Any]
    limit_seconds: int


def main() -> None:
    asked = json.load(sys.stdin)
    work = Work(asked["kind"], asked["given"], asked["limit_seconds"])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.alarm(work.limit_seconds + _OWN_LIMIT_SECONDS)
    answer = os.dup(1)
    # What a library prints is no answer.
    os.dup2(2, 1)
    guard = Guard([ip_network(network) for network in asked["allowed"]], asked["readable"])
    outcome = _done(work, guard)
    pause = None if outcome.retry_after is None else outcome.retry_after.total_seconds()
    ended = {**outcome._asdict(), "retry_after": pause}
    os.write(answer, json.dumps(ended).encode())
    # Threads that a library left behind, hung on a connection, are not waited for.
    os._exit(0)


def _done(work: Work, guard: Guard) -> Outcome:
    # It reads files of the system's when it is asked first.
    mimetypes.init()
    try:
        if work.kind == "smtp":
            from controlplane.alerts.receivers import smtp

            guard.hold()
            outcome = smtp.send(work.given, work.limit_seconds)
        else:
            from controlplane.alerts.receivers import apprising

            guard.hold()
            outcome = apprising.send(work.given, datetime.now(UTC))
    except AddressRefused as error:
        return Outcome(Reason.ADDRESS_REFUSED, str(error))
    if guard.refused and outcome.reason is not Reason.TAKEN:
        return Outcome(Reason.ADDRESS_REFUSED, guard.refused[0])
    return outcome


if __name__ == "__main__":
    main()
