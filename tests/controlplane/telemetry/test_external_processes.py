"""Real web processes that pass samples on, killed and started again."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from controlplane.telemetry.outgoing import FILE_NAME, Outgoing
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import ToldServer
from tests.controlplane.test_cli import HEADWORKS, headworks
from tests.services import Process, free_port, wait_for
from wire import PROTOCOL
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, encode


class Site:
    """One data directory, from which several web processes run."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self._folder = folder
        self.environment = {
            "HEADWORKS_DATA_DIR": str(folder / "data"),
            # Its own database, whatever this run's other tests use.
            "HEADWORKS_DATABASE_URL": "",
            "HEADWORKS_REDIS_URL": "",
            "HEADWORKS_REMOTE_WRITE_URL": f"{upstream}/api/v1/write",
        }
        assert headworks("migrate", **self.environment).returncode == 0
        self.outgoing = Outgoing(folder / "data" / FILE_NAME)

    def web(self, port: int) -> Process:
        argv = [*HEADWORKS, "web"]
        return Process(
            argv, log=self._folder / f"web-{port}.log", environment={**self.environment, "HEADWORKS_PORT": str(port)}
        )

    def enrolled(self, port: int) -> str:
        """The token of node n-1."""
        secret = headworks("join-token", "node", "--name", "n-1", **self.environment).stdout.strip()
        body = {"join_token": secret, "kind": "node", "name": "n-1", "version": "test", "protocol": PROTOCOL}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/targets/enrol",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["token"])


def push(port: int, token: str, name: str, time_ms: int) -> bool:
    """Whether a sample was answered with 204."""
    headers = {
        "Authorization": f"Bearer {token}", "Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING
    }  # fmt: skip
    body = encode([named(name, [(time_ms, 1.0)])])
    request = urllib.request.Request(f"http://127.0.0.1:{port}/prometheus/api/v1/write", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 204)
    except (urllib.error.URLError, OSError):
        return False


def test_what_two_web_processes_answered_arrives_in_order_though_one_is_killed(tmp_path):
    with ToldServer() as server, ExitStack() as stack:
        site = Site(tmp_path, server.base)
        ports = [free_port(), free_port()]
        webs = [stack.enter_context(site.web(port)) for port in ports]
        for web, port in zip(webs, ports, strict=True):
            web.wait_for_http(f"http://127.0.0.1:{port}/readyz")
        token = site.enrolled(ports[0])
        taken: dict[str, list[int]] = {"a": [], "b": []}
        server.always(503)

        def write(name: str, port: int) -> None:
            begin_ms = int(time.time()) * 1000
            for number in range(200):
                if not push(port, token, name, begin_ms + number):
                    return
                taken[name].append(begin_ms + number)

        writers = [threading.Thread(target=write, args=each) for each in zip(taken, ports, strict=True)]
        for writer in writers:
            writer.start()
        wait_for(lambda: min(map(len, taken.values())) >= 20, 60, "some writes of both")
        webs[0].kill()
        for writer in writers:
            writer.join()
        assert len(taken["b"]) == 200
        webs[1].kill()
        assert site.outgoing.waits()
        server.always(204)
        # Nobody writes now: a start alone sends what was left.
        last = stack.enter_context(site.web(ports[0]))
        last.wait_for_http(f"http://127.0.0.1:{ports[0]}/readyz")
        wait_for(lambda: not site.outgoing.waits(), 30, "an empty spool")
        site.outgoing.close()
    for name, times in taken.items():
        arrived = [series.samples[0][0] for series in server.taken if series.labels["__name__"] == name]
        # One whose answer was lost with the process may have arrived as well.
        assert arrived[: len(times)] == times
        assert len(arrived) <= len(times) + 1
