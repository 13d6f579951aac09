"""Start, restart with the control plane away, drain, and what stays on disk."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway import metrics, state
from gateway.app import App
from gateway.cli import Options, serve
from gateway.measure import artifacts
from gateway.peers import kept_live_gateways
from gateway.server import listen
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
from tests.services import free_port
from wire.credentials import Credentials, store_credentials
from wire.enrolment import Enrolment
from wire.snapshot_checks import decode_snapshot
from wire.target import TargetClient


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
    kept = gateway.state_dir / "artifacts" / "tokenizers" / sha
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
    artifacts = tmp_path / "state" / "artifacts" / "tokenizers"
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
        (["--port", "70000"], "HEADWORKS_GATEWAY_PORT: '70000' is not valid: give a whole number from 1 to 65535"),
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


async def test_it_waits_for_a_control_plane_that_is_not_there_yet(engine: ScriptedEngine, tmp_path: Path):
    async with running_gateway(tmp_path, configuration(engine.url)) as gateway:
        await gateway.control.stop()
        await asyncio.to_thread(gateway.process.kill)
        (gateway.state_dir / "target.json").unlink()
        gateway.launch()

        async def told() -> bool:
            return "does not answer" in gateway.process.log_tail()

        await gateway.until(told, True, "a first try")
        await gateway.control.start()
        await gateway.until_ready()


async def test_a_state_folder_of_another_gateway_is_not_taken_over(gateway: RunningGateway):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.cli", "--state-dir", str(gateway.state_dir), "--name", "gw-other",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate()
    assert process.returncode == 1
    assert "belongs to gateway 'gw-test', not to 'gw-other'" in said.decode()


async def test_a_follower_that_ends_takes_the_gateway_with_it(tmp_path: Path, monkeypatch, caplog):
    """Driven in this process, since nothing from outside can end it."""

    async def broken(self: TargetClient) -> None:
        raise ValueError("a defect of the follower")

    monkeypatch.setattr(TargetClient, "run", broken)
    store_credentials(tmp_path, Credentials("gw-test", "t" * 40, 4_000_000_000_000))
    enrolment = Enrolment("gateway", "http://127.0.0.1:9", "gw-test", "1", tmp_path, "", tmp_path / "none")
    async with asyncio.timeout(20):
        assert await serve(Options(enrolment, "127.0.0.1", free_port())) == 1
    assert "a defect of the follower" in caplog.text


async def test_a_port_that_is_taken_is_named(gateway: RunningGateway, tmp_path: Path):
    store_credentials(tmp_path / "second", Credentials("gw-2", "t" * 40, 4_000_000_000_000))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", "--state-dir", str(tmp_path / "second"), "--name", "gw-2",
            "--control-url", gateway.control.url, "--port", str(port), stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert f"127.0.0.1:{port}" in said.decode()


async def test_a_second_gateway_on_the_same_port_is_refused_by_name(gateway: RunningGateway, tmp_path: Path):
    """granian's own socket would share the port, and half of the requests go to a gateway nobody asked."""
    store_credentials(tmp_path / "second", Credentials("gw-2", "t" * 40, 4_000_000_000_000))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.cli", "--state-dir", str(tmp_path / "second"), "--name", "gw-2",
        "--control-url", gateway.control.url, "--port", str(gateway.port), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        _, said = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 1
    assert said.decode() == (
        f"headworks-gateway: 127.0.0.1:{gateway.port} is in use by another process; "
        "end that one, or set HEADWORKS_GATEWAY_PORT to a free port\n"
    )
    assert await gateway.call_status(chat()) == 200


@pytest.mark.parametrize(("host", "address"), [("::1", "[::1]"), ("::", "127.0.0.1"), ("localhost", "localhost")])
async def test_it_serves_on_ipv6_and_by_name(engine: ScriptedEngine, tmp_path: Path, host: str, address: str):
    listening = {"HEADWORKS_GATEWAY_HOST": host}
    async with running_gateway(tmp_path, configuration(engine.url), listening, address) as gateway:
        assert await gateway.call_status(chat()) == 200


def test_connections_send_tokens_at_once_and_are_given_up_when_they_stall(monkeypatch):
    monkeypatch.setenv("HEADWORKS_GATEWAY_STALLED_CLIENT_SECONDS", "7")
    port = free_port()
    with listen("127.0.0.1", port) as listener, socket.create_connection(("127.0.0.1", port)):
        listener.settimeout(10)
        connection, _ = listener.accept()
    with connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000


async def test_a_host_that_cannot_be_listened_on_is_named(tmp_path: Path):
    store_credentials(tmp_path, Credentials("gw-2", "t" * 40, 4_000_000_000_000))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.cli", "--state-dir", str(tmp_path), "--name", "gw-2", "--host", "192.0.2.1",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert "cannot listen on 192.0.2.1:8400: Cannot assign requested address" in said.decode()


async def test_its_log_says_who_it_is_and_when_the_stream_is_back(gateway: RunningGateway):
    assert "enrolled as gateway gw-test" in gateway.process.log_tail()
    assert f"gateway gw-test serves on 127.0.0.1:{gateway.port}" in gateway.process.log_tail()
    assert "stream is back" not in gateway.process.log_tail()
    await gateway.control.stop()
    await gateway.control.start()

    async def told() -> bool:
        return "the config stream is back" in gateway.process.log_tail()

    await gateway.until(told, True, "the stream to be back")


async def test_disk_and_long_pages_are_not_worked_on_in_the_event_loop(tmp_path: Path, monkeypatch):
    """Driven in this process, where the thread can be seen."""
    threads: dict[str, threading.Thread] = {}

    def noting(module: Any, name: str) -> None:
        original = getattr(module, name)

        def noted(*arguments: Any) -> Any:
            threads[name] = threading.current_thread()
            return original(*arguments)

        monkeypatch.setattr(module, name, noted)

    noting(state, "keep_live_gateways")
    noting(metrics, "generate_latest")
    noting(artifacts, "read_bounded")
    noting(artifacts, "write_private")
    data = word_tokenizer()

    async def fetch(path: str) -> bytes:
        return data

    gateway = state.Gateway(tmp_path, fetch)
    content = configuration("http://127.0.0.1:9")
    content["models"][MODEL]["tokenizer"] = hashlib.sha256(data).hexdigest()
    gateway.on_snapshot(decode_snapshot(content), 1)
    await gateway.on_peers(2)
    assert kept_live_gateways(tmp_path) == 2
    assert b"headworks_gateway_config_revision 1.0" in await gateway.metrics.page(gateway.moment())
    async with asyncio.timeout(20):
        while "write_private" not in threads:  # noqa: ASYNC110 - a thread's end has no event
            await asyncio.sleep(0.005)
    await gateway.close()
    assert set(threads) == {"keep_live_gateways", "generate_latest", "read_bounded", "write_private"}
    assert threading.main_thread() not in threads.values()


async def test_an_engine_whose_name_is_not_looked_up_in_time_is_out_of_reach(tmp_path: Path, monkeypatch):
    async def fetch(path: str) -> bytes:
        raise AssertionError(path)

    answered = asyncio.Event()

    async def hang(*_, **__):
        await answered.wait()
        raise OSError("no such name")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", hang)
    monkeypatch.setenv("HEADWORKS_GATEWAY_CONNECT_TIMEOUT_SECONDS", "0.05")
    gateway = state.Gateway(tmp_path, fetch)
    async with asyncio.timeout(10):
        with pytest.raises(aiohttp.ConnectionTimeoutError):
            await gateway.http.get("http://engine-7.rack:8000")
    answered.set()
    await gateway.close()


async def test_a_defect_of_its_own_is_named_and_holds_nothing(tmp_path: Path, monkeypatch):
    """Driven in this process, since no request can make one."""

    async def fetch(path: str) -> bytes:
        raise AssertionError(path)

    async def broken(*_):
        raise KeyError("a defect")

    gateway = state.Gateway(tmp_path, fetch)
    content = changed(configuration("http://127.0.0.1:9"), tenants__alpha={"max_parallel_requests": 1})
    gateway.on_snapshot(decode_snapshot(content), 1)
    monkeypatch.setattr(gateway.measure, "prompt_size", broken)
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
