"""Start, restart with the control plane away, drain, and what stays on disk."""

from __future__ import annotations

import asyncio
import hashlib
import stat
import sys
from pathlib import Path
from typing import Any

from tests.gateway.fleet import (
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
    terminate,
)


async def test_it_restarts_and_serves_with_the_control_plane_away_and_takes_up_news_later(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await gateway.publish(changed(gateway.control.content, tenants__beta={"rpm_limit": 1}))
    await gateway.control.stop()
    await asyncio.to_thread(gateway.process.kill)
    gateway.launch()
    await gateway.until_ready()
    assert (await gateway.call(chat(), tenant="beta"))[0] == 200
    assert await gateway.refusal(chat(), tenant="beta") == (429, "rpm_limit")
    assert await gateway.metric("headworks_gateway_config_connected") == 0
    await gateway.control.start()
    await gateway.publish(changed(gateway.control.content, tenants__beta={}))
    assert (await gateway.call(chat(), tenant="beta"))[0] == 200


async def test_files_that_hold_secrets_are_readable_by_the_owner_alone(gateway: RunningGateway):
    await gateway.call(chat())
    files = [path for path in gateway.state_dir.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"target.json", "last-known-good.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    log = gateway.process.log.read_text()
    assert gateway.control.join_token not in log
    assert all(key not in log for key in KEYS.values())


async def test_a_drain_lets_streams_end_and_takes_no_new_work(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.one_token_then_silence
    async with gateway.post(chat(stream=True)) as running:
        assert await running.content.readany() == event(delta("first"))
        terminate(gateway)
        await gateway.until(gateway.ready_status, 503, "503 from /readyz")
        status, document, headers = await gateway.call(chat())
        assert (status, document["error"]["code"]) == (503, "draining")
        assert headers["connection"] == "close"
        engine.release.set()
        assert (await running.text()).endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(gateway.process.wait, 10) == 0


async def test_a_drain_ends_in_bounded_time(engine: ScriptedEngine, tmp_path: Path):
    engine.behave = engine.one_token_then_silence
    bound = {"HEADWORKS_GATEWAY_DRAIN_SECONDS": "0.2"}
    async with running_gateway(tmp_path, configuration(engine.url), bound) as gateway:
        async with gateway.post(chat(stream=True)) as running:
            await running.content.readany()
            terminate(gateway)
            assert '"code":"draining"' in await running.text()
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0


async def test_idle_connections_do_not_keep_others_out(engine: ScriptedEngine, tmp_path: Path):
    few = {"HEADWORKS_GATEWAY_LISTEN_BACKLOG": "8", "HEADWORKS_GATEWAY_MAX_CONNECTIONS": "100"}
    async with running_gateway(tmp_path, configuration(engine.url), few) as gateway:
        idle = [(await asyncio.open_connection("127.0.0.1", gateway.port))[1] for _ in range(40)]
        assert await asyncio.wait_for(gateway.call_status(chat()), 5) == 200
        for writer in idle:
            writer.close()


async def test_the_models_own_tokenizer_measures(gateway: RunningGateway, engine: ScriptedEngine):
    data = word_tokenizer()
    sha = gateway.control.add_artifact(data)
    await gateway.publish(changed(gateway.control.content, models={MODEL: {**_model(gateway), "tokenizer": sha}}))
    body = {"model": MODEL, "prompt": "one two three four"}

    async def measured() -> str:
        _, _, headers = await gateway.call(body, path="/v1/completions")
        return headers["x-headworks-prompt-tokens"]

    await gateway.until(measured, "4;source=tokenizer", "the tokenizer")
    kept = gateway.state_dir / "artifacts" / sha
    assert kept.read_bytes() == data
    long = {"model": MODEL, "prompt": "word " * 5000}
    status, document, _ = await gateway.call(long, path="/v1/completions")
    assert (status, document["error"]["code"]) == (400, "context_length_exceeded")
    assert "5000 tokens" in document["error"]["message"]

    await gateway.control.stop()
    await asyncio.to_thread(gateway.process.kill)
    gateway.launch()
    await gateway.until_ready()
    await gateway.until(measured, "4;source=tokenizer", "the tokenizer from disk")


async def test_a_damaged_tokenizer_is_fetched_again_and_wrong_bytes_are_never_used(
    engine: ScriptedEngine, tmp_path: Path
):
    data = word_tokenizer()
    sha = hashlib.sha256(data).hexdigest()
    artifacts = tmp_path / "state" / "artifacts"
    artifacts.mkdir(parents=True)
    (artifacts / sha).write_bytes(data[:-1])
    content = configuration(engine.url)
    content["models"][MODEL]["tokenizer"] = sha
    quick = {"HEADWORKS_GATEWAY_ARTIFACT_RETRY_SECONDS": "0.05"}
    async with running_gateway(tmp_path, content, quick) as gateway:
        gateway.control.artifacts[sha] = b"not the bytes of this name"
        body = {"model": MODEL, "prompt": "one two three four"}

        async def source() -> str:
            _, _, headers = await gateway.call(body, path="/v1/completions")
            return headers["x-headworks-prompt-tokens"].split("=")[1]

        async def told() -> bool:
            return "bytes of another SHA-256" in gateway.process.log_tail()

        await gateway.until(told, True, "the refusal in the log")
        assert await source() == "estimate"
        gateway.control.artifacts[sha] = data
        await gateway.until(source, "tokenizer", "the right bytes")


async def test_it_does_not_start_without_a_join_token_and_says_why(tmp_path: Path):
    for arguments, expected in (
        (["--join-token-file", str(tmp_path / "absent")], "join token cannot be read"),
        (["--port", "0x"], "invalid int value"),
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", "--state-dir", str(tmp_path / "state"), *arguments,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
        assert process.returncode != 0
        assert expected in said.decode()
        assert "Traceback" not in said.decode()


async def test_a_wrong_join_token_is_refused_by_name(engine: ScriptedEngine, tmp_path: Path):
    async with running_gateway(tmp_path, configuration(engine.url)) as gateway:
        (tmp_path / "wrong").write_text("x" * 40)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", "--state-dir", str(tmp_path / "other"), "--control-url",
            gateway.control.url, "--join-token-file", str(tmp_path / "wrong"), "--name", "other",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
        assert process.returncode == 1
        assert "unknown_join_token" in said.decode()
        assert "x" * 40 not in said.decode()


async def test_a_defect_of_its_own_is_named_and_holds_nothing(tmp_path: Path, monkeypatch):
    """Driven in this process, since no request can make one."""
    from gateway import state
    from gateway.app import App
    from wire.snapshot import decode_snapshot

    async def fetch(path: str) -> bytes:
        raise AssertionError(path)

    async def broken(*_):
        raise KeyError("a defect")

    gateway = state.Gateway(tmp_path, fetch)
    content = changed(configuration("http://127.0.0.1:9"), tenants__alpha={"max_parallel_requests": 1})
    gateway.on_snapshot(decode_snapshot(content), 1)
    monkeypatch.setattr(gateway.measure, "prompt_tokens", broken)
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": f'{{"model": "{MODEL}", "prompt": "x"}}'.encode()}]

    async def receive():
        if messages:
            return messages.pop()
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/v1/completions", "http_version": "1.1",
        "headers": [(b"authorization", f"Bearer {KEYS['alpha']}".encode())],
    }  # fmt: skip
    await App(gateway)(scope, receive, send)
    assert sent[0]["status"] == 500
    assert b'"internal_error"' in sent[1]["body"]
    assert not gateway.running
    await gateway.close()


def _model(gateway: RunningGateway) -> dict[str, Any]:
    return dict(gateway.control.content["models"][MODEL])


def word_tokenizer() -> bytes:
    """A tokenizer of one token a word."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"word": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer.to_str().encode()
