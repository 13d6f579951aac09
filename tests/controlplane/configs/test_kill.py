"""SIGKILL of a real web process while it publishes, and what is there afterwards."""

from __future__ import annotations

import itertools
import threading
import time
import urllib.error
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.rest_client import RestError
from tests.controlplane.configs.live import live_site
from tests.services import wait_for


@pytest.mark.timeout(240)
def test_a_kill_during_publishing_loses_no_committed_change_and_leaves_no_half_revision(tmp_path: Path) -> None:
    with live_site(tmp_path, HEADWORKS_PUBLISH_QUIET_MS="0") as live:
        committed: dict[str, int] = {}
        # Grows over all rounds, so that a later limit is always a higher one.
        limits = itertools.count(1)
        gateway = live.enrol("gateway", "gw")

        def write(worker: int) -> None:
            # Until the process is gone: an answer says that the change is committed.
            for number in itertools.count():
                name, limit = f"t-{worker}-{number % 3}", next(limits)
                try:
                    if name in committed:
                        live.rest.patch(f"/tenants/{name}", {"tpm_limit": limit})
                    else:
                        live.rest.post("/tenants", {"name": name, "tpm_limit": limit})
                except (urllib.error.URLError, OSError, RestError):
                    return
                committed[name] = limit

        def grown(beyond: int) -> bool:
            return max(committed.values(), default=0) > beyond

        for round_seconds in (0.3, 0.45, 0.7):
            writers = [threading.Thread(target=write, args=(worker,)) for worker in range(2)]
            for writer in writers:
                writer.start()
            wait_for(partial(grown, max(committed.values(), default=0)), 20, "a write of this round")
            time.sleep(round_seconds)  # the moment of the kill, any will do
            live.kill()
            for writer in writers:
                writer.join()
            live.start()

        def published() -> bool:
            return all(limit_of(newest_content(), name) >= limit for name, limit in committed.items())

        def newest_content() -> Any:
            (newest,) = live.rest.get("/revisions", limit=1)["items"] or [None]
            return live.rest.get(f"/revisions/{newest['number']}/content")["content"] if newest else {}

        def limit_of(content: dict[str, dict[str, dict[str, int]]], name: str) -> int:
            return content.get("tenants", {}).get(name, {}).get("tpm_limit", -1)

        # A change whose answer was lost may be there too; none that was answered is missing.
        wait_for(published, 20, "every committed change in a revision")
        contents = live.contents()
        stream = gateway.stream()
        stream.next()
        assert stream.held.content["tenants"] == contents[max(contents)]["tenants"]
        stream.close()


def test_a_stop_ends_the_streams_and_the_process_in_time(tmp_path: Path) -> None:
    with live_site(tmp_path) as live:
        streams = [live.enrol("gateway", f"gw-{number}").stream() for number in range(3)]
        for stream in streams:
            stream.next()
        assert live.stop() == 0, "it had to be killed"
        for stream in streams:
            assert stream.next() is None
