"""SIGKILL of a real web process between a write's commit and its answer: whoever sends the write again gets it."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.configs.live import Live, live_site
from tests.services import wait_for

# Longer than the test needs: nothing but the kill, and later the gateway's own acknowledgement, ends the waiting.
WAIT_SECONDS = 60
PATH = f"/tenants/acme/keys?reason=a+test&wait=applied&timeout={WAIT_SECONDS}"


def make_key(live: Live) -> tuple[dict[str, Any], Message]:
    request = urllib.request.Request(
        f"{live.address}/api/v1{PATH}",
        json.dumps({"label": "app"}).encode(),
        {
            "Authorization": f"Bearer {live.rest.token}",
            "Content-Type": "application/json",
            "Idempotency-Key": "7f0c1d9e-the-first",
        },
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=2 * WAIT_SECONDS) as answer:
        return json.loads(answer.read()), answer.headers


@pytest.mark.timeout(180)
def test_a_write_whose_answer_was_lost_is_answered_when_it_comes_again_and_is_done_once(tmp_path: Path) -> None:
    with live_site(tmp_path) as live:
        gateway = live.enrol("gateway", "gw")
        live.rest.post("/tenants", {"name": "acme"})
        lost: list[BaseException] = []

        def call() -> None:
            try:
                make_key(live)
            except (urllib.error.URLError, OSError) as error:
                lost.append(error)

        def committed() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = live.rest.get("/audit", noun="key")["items"]
            return found

        caller = threading.Thread(target=call)
        caller.start()
        # It is stored, and the answer waits for a gateway that runs nothing yet.
        first = wait_for(committed, 20, "the write's audit entry")
        live.kill()
        caller.join(20)
        assert lost, "the first call was answered"

        live.start()
        stream = gateway.stream()
        stream.next()
        while not stream.held.content.get("keys"):
            assert stream.next() is not None, "the stream ended before the key came"
        gateway.ack(stream.held)
        stream.close()
        answer, headers = make_key(live)
        assert headers["Idempotency-Replayed"] == "true"
        assert (answer["change_id"], str(answer["item"]["id"])) == (first[0]["change_id"], first[0]["key"])
        assert answer["secret"].startswith(answer["item"]["prefix"])
        assert (answer["convergence"]["applied"], answer["convergence"]["pending"]) == (1, [])
        assert len(committed()) == len(live.rest.get("/tenants/acme/keys")["items"]) == 1
