"""The client of docs/gateway-client.md, as it stands there, against a real web process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.controlplane.configs.live import Live
from tests.services import Process, service_binary, wait_for
from wire.canonical import canonical_json

PAGE = Path(__file__).parents[3] / "docs" / "gateway-client.md"


def shell_client(live: Live, folder: Path) -> Callable[[], Process]:
    """Starts the page's client, as often as a test likes."""
    for program in ("curl", "jq"):
        service_binary(program)
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "client.sh").write_text(script)
    join_token = live.rest.post("/targets/join-tokens", {"kind": "gateway", "name": "shell-gateway"})["secret"]
    environment = {"HEADWORKS_URL": live.address, "JOIN_TOKEN": join_token}
    return lambda: Process(["sh", "client.sh"], log=folder / "log", environment=environment, cwd=folder)


def test_the_shell_client_of_the_page_follows_enrols_and_acknowledges(live: Live, tmp_path: Path) -> None:
    process = shell_client(live, tmp_path)

    def held() -> dict[str, object]:
        file = tmp_path / "slice.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def applied() -> bool:
        states = [target["state"] for target in live.rest.get("/config/convergence")["targets"]]
        return states == ["applied"] and held().get("tenants") == tenants

    with process() as client:
        tenants: dict[str, object] = {}
        client.wait_until(applied, "the snapshot applied")
        live.rest.post("/tenants", {"name": "acme", "tpm_limit": 7})
        tenants = {"acme": {"weight": 1, "blocked": False, "tpm_limit": 7}}
        client.wait_until(applied, "the patch applied")
        live.rest.patch("/tenants/acme", {"tpm_limit": None})
        tenants = {"acme": {"weight": 1, "blocked": False}}
        client.wait_until(applied, "a limit taken away")
        client.kill()
    live.rest.call("DELETE", "/tenants/acme")
    with process() as client:
        tenants = {}
        client.wait_until(applied, "a change made while it was away")
        client.kill()
    assert (tmp_path / "slice.json").read_bytes() == canonical_json(held()) + b"\n"
    for private in ("token", "received.json", "slice.json", "curl.conf"):
        assert (tmp_path / private).stat().st_mode & 0o777 == 0o600
    wait_for(lambda: re.search(r"revision \d+: \[\]", (tmp_path / "log").read_text()), 5, "its words")


def test_the_shell_client_refuses_what_it_cannot_hold_to_and_goes_on(live: Live, tmp_path: Path) -> None:
    client = shell_client(live, tmp_path)
    models = {"max_context_tokens": 4096, "max_tokens": 1024}
    for model in ("small", "large"):
        live.rest.post("/models", {"name": model, **models})
        live.rest.post("/pools", {"name": model, "model": model})
    route = {"name": "all", "order": 1, "match": {"models": ["large"]}, "pools": {"large": 1000}}
    live.rest.post("/routes", route)

    def target() -> dict[str, object]:
        targets = live.rest.get("/config/convergence")["targets"]
        return targets[0] if targets else {}

    def routes() -> object:
        file = tmp_path / "slice.json"
        return json.loads(file.read_text()).get("routes") if file.exists() else None

    with client() as running:
        # One that joined before under this name may stand as applied until this one has begun.
        running.wait_until(lambda: routes() and target().get("state") == "applied", "the slice without a cascade")
        kept = routes()
        live.rest.patch("/routes/all", {"cascade": {"pool": "small", "escalate_on": ["length"]}})
        running.wait_until(lambda: target()["state"] == "refused", "the refusal")
        assert "this client asks one pool a request" in str(target())
        assert routes() == kept
        running.kill()
    with client() as running:
        # A patch builds on what was received, refused or not.
        live.rest.patch("/routes/all", {"order": 2, "cascade": None})
        running.wait_until(lambda: target()["state"] == "applied", "the slice without the cascade")
        assert routes() != kept
        running.kill()


def test_the_page_names_what_the_stream_and_the_refusals_are() -> None:
    page = PAGE.read_text()
    for word in ("snapshot", "patch", "peers", "wrong_hash", "unknown_revision", "protocol_not_served", "revoked"):
        assert f"`{word}`" in page
