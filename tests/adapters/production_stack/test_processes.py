"""A web process, an adapter process, and the file between them and the router."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.production_stack.router import read
from tests.controlplane.configs.live import Live, live_site
from tests.services import Process

pytestmark = pytest.mark.controlplane

MODEL = "team/chat"
ENGINES = {"e-1": "http://10.0.0.1:8000", "e-2": "http://10.0.0.2:8000"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_site(tmp_path_factory.mktemp("control-plane")) as live:
        live.rest.post("/models", {"name": MODEL, "max_context_tokens": 4096, "max_tokens": 1024})
        live.rest.post("/pools", {"name": "chat", "model": MODEL})
        for name, url in ENGINES.items():
            row = {"name": name, "pool": "chat", "kind": "vllm", "url": url, "served_model": MODEL}
            live.rest.post("/engines", row)
        yield live


@pytest.fixture
def live(site: Live) -> Live:
    """With both engines in service."""
    for name in ENGINES:
        site.rest.post(f"/engines/{name}/uncordon", {})
    return site


class Adapter:
    """The adapter's process, started as often as a test likes, and its file."""

    def __init__(self, live: Live, folder: Path) -> None:
        self.live, self.folder, self.file = live, folder, folder / "router.json"
        self.name = f"router-{uuid.uuid4().hex[:8]}"
        join_token = folder / "join-token"
        join_token.write_text(live.rest.post("/targets/join-tokens", {"kind": "gateway", "name": self.name})["secret"])
        self.argv = [
            sys.executable, "-m", "adapters.production_stack.cli", "--control-url", live.address, "--name", self.name,
            "--join-token-file", str(join_token), "--state-dir", str(folder / "state"), "--file", str(self.file),
        ]  # fmt: skip

    def process(self) -> Process:
        return Process(self.argv, log=self.folder / "adapter.log")

    def addresses(self) -> list[str]:
        return [url for url, _ in read(self.file.read_bytes()).backends] if self.file.exists() else []

    def log(self) -> str:
        return (self.folder / "adapter.log").read_text()

    def target(self) -> Any:
        targets = self.live.rest.get("/config/convergence")["targets"]
        (target,) = [target for target in targets if target["name"] == self.name]
        return target


def test_a_cordon_takes_the_engine_out_of_the_file_within_a_second(live, tmp_path):
    adapter = Adapter(live, tmp_path)
    with adapter.process() as process:
        process.wait_until(lambda: adapter.addresses() == list(ENGINES.values()), "both engines in the file")
        process.wait_until(lambda: adapter.target()["state"] == "applied", "the acknowledgement")
        live.rest.post("/engines/e-1/cordon", {})
        cordoned = time.monotonic()
        process.wait_until(lambda: adapter.addresses() == [ENGINES["e-2"]], "the cordon in the file")
        assert time.monotonic() - cordoned < 1
        assert process.stop() == 0
    assert "not enforced by the router: " in (tmp_path / "adapter.log").read_text()


def test_the_last_engine_is_kept_and_the_control_plane_is_told_why(live, tmp_path):
    adapter = Adapter(live, tmp_path)
    with adapter.process() as process:
        process.wait_until(lambda: len(adapter.addresses()) == 2, "both engines in the file")
        live.rest.post("/engines/e-1/cordon", {})
        process.wait_until(lambda: adapter.addresses() == [ENGINES["e-2"]], "the first cordon in the file")
        live.rest.post("/engines/e-2/cordon", {})
        process.wait_until(lambda: adapter.target()["state"] == "refused", "the refusal")
        assert "no engine is left" in str(adapter.target())
        assert adapter.addresses() == [ENGINES["e-2"]]
        live.rest.post("/engines/e-1/uncordon", {})
        process.wait_until(lambda: adapter.addresses() == [ENGINES["e-1"]], "the engine that is back")
        process.wait_until(lambda: adapter.target()["state"] == "applied", "the acknowledgement")


def test_a_file_that_could_not_be_written_is_written_once_it_can_be(live, tmp_path):
    adapter = Adapter(live, tmp_path)
    folder = tmp_path / "of-the-router"
    adapter.file = folder / "router.json"
    adapter.argv[-1] = str(adapter.file)
    with adapter.process() as process:
        process.wait_until(lambda: "cannot be written" in adapter.log(), "the first try")
        process.wait_until(lambda: adapter.target()["state"] == "refused", "the refusal")
        assert "cannot be written" in str(adapter.target())
        folder.mkdir()
        process.wait_until(lambda: adapter.addresses() == list(ENGINES.values()), "the file, without a new revision")
        process.wait_until(lambda: adapter.target()["state"] == "applied", "the acknowledgement")
        assert process.stop() == 0
    adapter.file.unlink()
    folder.rmdir()
    live.kill()
    try:
        with adapter.process() as process:
            process.wait_until(lambda: "not be taken yet" in adapter.log(), "the first try")
            folder.mkdir()
            process.wait_until(lambda: len(adapter.addresses()) == 2, "the file from the last known good slice")
    finally:
        live.start()


def test_whatever_moment_it_is_killed_at_the_file_is_whole_and_it_goes_on_without_the_control_plane(live, tmp_path):
    adapter = Adapter(live, tmp_path)
    with adapter.process() as process:
        process.wait_until(lambda: len(adapter.addresses()) == 2, "both engines in the file")
        process.kill()
    for moment_ms in range(0, 50, 10):
        with adapter.process() as process:
            process.wait_until(lambda: adapter.target()["connected"], "the stream")
            for act in ("cordon", "uncordon"):
                live.rest.post(f"/engines/e-1/{act}", {})
            read_until = time.monotonic() + moment_ms / 1000
            while time.monotonic() < read_until:
                adapter.addresses()
            process.kill()
        assert ENGINES["e-2"] in adapter.addresses()
    adapter.file.unlink()
    live.kill()
    try:
        with adapter.process() as process:
            process.wait_until(lambda: ENGINES["e-2"] in adapter.addresses(), "the file from the last known good slice")
    finally:
        live.start()
