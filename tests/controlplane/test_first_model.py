"""The commands of docs/first-model.md and docs/measuring.md, as they stand there, against a real control plane, gateway
and engine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from simulator.tokenizer import CHAT_TEMPLATE, train_tokenizer
from tests.controlplane.configs.live import live_site
from tests.services import Process, free_port, service_binary, wait_for

DOCS = Path(__file__).parents[2] / "docs"
PAGE, MEASURING = DOCS / "first-model.md", DOCS / "measuring.md"


def test_the_pages_lead_from_a_joined_gateway_to_an_answer_that_was_measured_exactly(tmp_path: Path) -> None:
    for program in ("curl", "jq"):
        service_binary(program)
    first, upload = (re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)[0] for page in (PAGE, MEASURING))
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
            names["HEADWORKS_URL"] = live.address
            answer = json.loads(_run(first, tmp_path, names))
            train_tokenizer().save(str(tmp_path / "tokenizer.json"))
            (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
            _run(f"set -eu\n{upload}", tmp_path, names)
            _until_the_template_measures(names, tmp_path)
    assert answer["model"] == names["MODEL"]
    assert answer["choices"][0]["message"]["content"]
    for private in ("set-up.conf", "client.conf"):
        assert (tmp_path / private).stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "answer.json").exists()


def _run(script: str, folder: Path, names: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _until_the_template_measures(names: dict[str, str], folder: Path) -> None:
    """And the engine counts the same."""
    body = {"model": names["MODEL"], "max_tokens": 1, "messages": [{"role": "user", "content": "Say hello."}]}
    (folder / "body.json").write_text(json.dumps(body))
    ask = 'curl -sS --fail-with-body -i -K client.conf --json @body.json "$GATEWAY_URL/v1/chat/completions"'

    def measured() -> bool:
        head, _, answer = _run(ask, folder, names).replace("\r", "").partition("\n\n")
        counted = json.loads(answer)["usage"]["prompt_tokens"]
        return f"x-headworks-prompt-tokens: {counted};source=template" in head.splitlines()

    wait_for(measured, 20, "the template to measure")
