"""The client of docs/gateway-client.md, as it stands there, against a real web process."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.controlplane.configs.live import Live
from tests.services import Process, service_binary, wait_for
from wire.canonical import canonical_json

PAGE = Path(__file__).parents[3] / "docs" / "gateway-client.md"


def test_the_shell_client_of_the_page_follows_enrols_and_acknowledges(live: Live, tmp_path: Path) -> None:
    for program in ("curl", "jq"):
        service_binary(program)
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "client.sh").write_text(script)
    join_token = live.rest.post("/targets/join-tokens", {"kind": "gateway", "name": "shell-gateway"})["secret"]
    environment = {"HEADWORKS_URL": live.address, "JOIN_TOKEN": join_token}

    def held() -> dict[str, object]:
        file = tmp_path / "slice.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def applied() -> bool:
        states = [target["state"] for target in live.rest.get("/config/convergence")["targets"]]
        return states == ["applied"] and held().get("tenants") == tenants

    def process() -> Process:
        return Process(["sh", "client.sh"], log=tmp_path / "log", environment=environment, cwd=tmp_path)

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
    for private in ("token", "slice.json", "curl.conf"):
        assert (tmp_path / private).stat().st_mode & 0o777 == 0o600
    wait_for(lambda: "applied revision" in (tmp_path / "log").read_text(), 5, "its words")


def test_the_page_names_what_the_stream_and_the_refusals_are() -> None:
    page = PAGE.read_text()
    for word in ("snapshot", "patch", "peers", "wrong_hash", "unknown_revision", "protocol_not_served", "revoked"):
        assert f"`{word}`" in page
