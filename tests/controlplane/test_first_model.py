"""The commands of docs/first-model.md, as they stand there, against a real control plane, gateway and engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.controlplane.configs.live import live_site
from tests.services import Process, free_port, service_binary

PAGE = Path(__file__).parents[2] / "docs" / "first-model.md"


def test_the_page_leads_from_a_joined_gateway_to_the_first_answer(tmp_path: Path) -> None:
    for program in ("curl", "jq"):
        service_binary(program)
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    engine_port, gateway_port = free_port(), free_port()
    names = {
        "ENGINE_URL": f"http://127.0.0.1:{engine_port}",
        "GATEWAY_URL": f"http://127.0.0.1:{gateway_port}",
        "MODEL": "team/first-model",
    }
    for name in ("HEADWORKS_URL", *names):
        assert f"export {name}=" in PAGE.read_text()
    engine = [sys.executable, "-m", "simulator.engine", "--port", str(engine_port), "--model", names["MODEL"]]
    (tmp_path / "control-plane").mkdir()
    with live_site(tmp_path / "control-plane") as live, Process(engine, log=tmp_path / "engine.log") as engine_process:
        (tmp_path / "token").write_text(live.rest.token)
        join_token = tmp_path / "join-token"
        join_token.write_text(live.rest.post("/targets/join-tokens", {"kind": "gateway", "name": "gw"})["secret"])
        join_token.chmod(0o600)
        argv = [
            sys.executable, "-m", "gateway.cli", "--control-url", live.address, "--join-token-file", str(join_token),
            "--name", "gw", "--state-dir", str(tmp_path / "gateway"), "--port", str(gateway_port),
        ]  # fmt: skip
        with Process(argv, log=tmp_path / "gateway.log") as gateway:
            gateway.wait_for_port(gateway_port)
            engine_process.wait_for_port(engine_port)
            done = subprocess.run(
                ["sh", "-c", script],
                cwd=tmp_path,
                env={**os.environ, **names, "HEADWORKS_URL": live.address},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["model"] == names["MODEL"]
    assert answer["choices"][0]["message"]["content"]
    for private in ("set-up.conf", "client.conf"):
        assert (tmp_path / private).stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "answer.json").exists()
