"""Probes of engines over HTTP: when they are tried, what is told of them, and which key they show."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.pages import EnginePages
from gpu_agent.engines.probes import ProbeOptions, Probes
from gpu_agent.policy import EnginePolicy, NodePolicy
from tests.services import free_port
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.snapshot import NodeEngine

COMPLETION = {"choices": [{"index": 0, "text": " the", "finish_reason": "length"}]}
OBEYING = {"choices": [{"index": 0, "message": {"content": '{"colour":"red","count":4}'}, "finish_reason": "stop"}]}
CHAT = "/v1/chat/completions"
CANARY_SECONDS, CONFORMANCE_SECONDS = 30, 3600
WITHOUT_KEYS = NodePolicy()


@dataclass
class OpenAiApi:
    """`answers`: path → (status, body). `held`: while it is cleared, nothing is answered."""

    url: str = ""
    answers: dict[str, tuple[int, Any]] = field(
        default_factory=lambda: {"/v1/completions": (200, COMPLETION), CHAT: (200, OBEYING)}
    )
    held: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[Any] = field(default_factory=list)
    most_at_once: int = 0
    now: int = 0

    async def answer(self, request):
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            self.requests.append((request.path, request.headers.get("Authorization"), await request.json()))
            await self.held.wait()
            status, body = self.answers[request.path]
            return (
                web.json_response(body, status=status)
                if isinstance(body, dict)
                else web.Response(status=status, text=body)
            )
        finally:
            self.now -= 1


@pytest.fixture
async def api():
    served = OpenAiApi()
    served.held.set()
    application = web.Application()
    application.router.add_post("/{path:.*}", served.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield served
    await runner.cleanup()


class Tried:
    """Probes of one engine, with a clock."""

    def __init__(self, probes, told, clock, engine):
        self.probes, self.told, self.clock, self.engine = probes, told, clock, engine

    async def begin(self, passed_seconds=0):
        """Begin what is due, and wait for its end."""
        self.clock[0] += passed_seconds
        self.probes.begin("e1", self.engine)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.probes.is_trying("e1"):  # noqa: ASYNC110 - a probe has no event
                await asyncio.sleep(0.002)
        return {name: outcome.failure for name, outcome in self.probes.outcomes("e1").items()}

    @property
    def kinds(self):
        return [one.kind for _, one in self.told]


@asynccontextmanager
async def trying(api, policy=WITHOUT_KEYS, timeout_seconds=DEADLINE_SECONDS, conformance_seconds=0, canary_seconds=0):
    pages = EnginePages(timeout_seconds=2, limit_bytes=2**20)
    told, clock = [], [1000.0]
    options = ProbeOptions(canary_seconds, conformance_seconds, timeout_seconds)
    tell = lambda name, one: told.append((name, one))  # noqa: E731
    probes = Probes(pages, tell, EngineKeys(policy), options, clock=lambda: clock[0])
    try:
        yield Tried(probes, told, clock, NodeEngine(api.url, "vllm", "short", "llama", served_model="llama-8b"))
    finally:
        probes.close()
        await pages.close()


@pytest.fixture
async def canary(api):
    async with trying(api, canary_seconds=CANARY_SECONDS) as tried:
        yield tried


@pytest.fixture
async def conformance(api):
    async with trying(api, conformance_seconds=CONFORMANCE_SECONDS) as tried:
        yield tried


async def test_a_canary_is_tried_at_once_and_then_in_its_interval(canary, api):
    assert await canary.begin() == {"canary": ""}
    ((path, key, question),) = api.requests
    assert (path, key, question["model"]) == ("/v1/completions", None, "llama-8b")
    await canary.begin(CANARY_SECONDS - 1)
    assert len(api.requests) == 1
    await canary.begin(1)
    assert len(api.requests) == 2
    assert 0 < canary.probes.outcomes("e1")["canary"].seconds < DEADLINE_SECONDS
    assert canary.told == []


async def test_nothing_is_tried_where_nothing_is_asked_for(api):
    async with trying(api) as tried:
        assert await tried.begin() == {}
    assert api.requests == []


async def test_two_failures_in_a_row_are_told_once_and_their_end_once(canary, api):
    api.answers["/v1/completions"] = 500, {"error": {"message": "EngineCore encountered an issue", "code": 500}}
    await canary.begin()
    assert canary.told == [], "one may be a request that was lost"
    for _ in range(3):
        await canary.begin(CANARY_SECONDS)
    ((name, told),) = canary.told
    assert (name, told.kind, told.severity) == ("e1", "engine_probe_failed", "warning")
    assert told.detail == (
        "engine e1 (vllm, pool short) fails the probe canary: refused_500: EngineCore encountered an issue"
    )
    api.answers["/v1/completions"] = 200, COMPLETION
    for _ in range(3):
        await canary.begin(CANARY_SECONDS)
    assert canary.kinds == ["engine_probe_failed", "engine_probe_ok"]


async def test_a_first_failure_is_tried_again_at_the_next_look(conformance, api):
    api.answers[CHAT] = 200, {"choices": [{"message": {"content": "Hello!"}}]}
    await conformance.begin()
    await conformance.begin(5)
    assert conformance.kinds == ["engine_probe_failed"]
    await conformance.begin(5)
    assert len(api.requests) == 2, "then it keeps its interval"


async def test_failures_with_a_success_between_them_are_not_told(canary, api):
    for status in 500, 200, 500, 200:
        api.answers["/v1/completions"] = status, COMPLETION
        await canary.begin(CANARY_SECONDS)
    assert canary.told == []


async def test_the_end_is_told_when_no_probe_fails_any_more(api):
    async with trying(api, canary_seconds=1, conformance_seconds=1) as tried:
        good = dict(api.answers)
        api.answers |= {path: (400, {"error": {"message": "no"}}) for path in good}
        for _ in range(4):
            await tried.begin(5)
        assert tried.kinds == ["engine_probe_failed"] * 2
        api.answers["/v1/completions"] = good["/v1/completions"]
        for _ in range(4):
            await tried.begin(5)
        assert len(tried.kinds) == 2
        api.answers[CHAT] = good[CHAT]
        for _ in range(4):
            await tried.begin(5)
        assert tried.kinds == ["engine_probe_failed"] * 2 + ["engine_probe_ok"]


async def test_no_two_are_under_way_at_one_engine(api):
    api.held.clear()
    async with trying(api, canary_seconds=1, conformance_seconds=1) as tried:
        for _ in range(10):
            tried.clock[0] += 10
            tried.probes.begin("e1", tried.engine)
            await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not api.requests:  # noqa: ASYNC110 - a request has no event
                await asyncio.sleep(0.002)
        assert len(api.requests) == 1
        api.held.set()
        await tried.begin(10)
        await tried.begin(10)
    assert {path for path, *_ in api.requests} == {"/v1/completions", CHAT}, "both get their turn"
    assert api.most_at_once == 1


async def test_an_engine_that_does_not_answer_in_time_fails(api):
    api.held.clear()
    async with trying(api, canary_seconds=CANARY_SECONDS, timeout_seconds=0.1) as tried:
        assert await tried.begin() == {"canary": "no_answer: /v1/completions: no answer in time"}


async def test_an_engine_whose_port_is_closed_fails(api):
    async with trying(api, canary_seconds=CANARY_SECONDS) as tried:
        port = free_port()
        tried.engine = NodeEngine(f"http://127.0.0.1:{port}", "vllm", "short", "llama")
        said = f"no_answer: /v1/completions: Cannot connect to 127.0.0.1:{port}: Connection refused"
        assert await tried.begin() == {"canary": said}


@pytest.mark.parametrize(("status", "body"), [(404, ""), (404, {"detail": "Not Found"}), (405, ""), (501, "x")])
async def test_an_engine_without_the_api_is_skipped_and_not_failed(canary, api, status, body):
    api.answers["/v1/completions"] = status, body
    assert await canary.begin() == {}
    assert await canary.begin(CANARY_SECONDS) == {}
    assert canary.told == []


@pytest.mark.parametrize("status", [429, 503])
async def test_an_engine_that_is_full_shows_nothing(canary, api, status):
    api.answers["/v1/completions"] = status, {"error": {"message": "too many requests wait"}}
    for _ in range(3):
        assert await canary.begin(CANARY_SECONDS) == {}
    assert canary.told == []


async def test_an_engine_that_lacks_the_model_fails(canary, api):
    api.answers["/v1/completions"] = 404, {"error": {"message": "The model `llama-8b` does not exist.", "code": 404}}
    assert await canary.begin() == {"canary": "refused_404: The model `llama-8b` does not exist."}


async def test_a_schema_that_is_refused_says_so(conformance, api):
    api.answers[CHAT] = 400, {"error": {"message": "response_format\nis unknown " + "x" * 5000}}
    failure = (await conformance.begin())["json_schema"]
    assert failure.startswith("refused_400: response_format is unknown xxx")
    assert len(failure) < 300


async def test_an_engine_that_stops_serving_is_not_asked_and_what_was_told_still_ends(canary, api):
    api.answers["/v1/completions"] = 500, {}
    await canary.begin()
    await canary.begin(CANARY_SECONDS)
    canary.probes.forget("e1")
    assert canary.probes.outcomes("e1") == {}
    api.answers["/v1/completions"] = 200, COMPLETION
    assert await canary.begin() == {"canary": ""}, "at once"
    assert canary.kinds == ["engine_probe_failed", "engine_probe_ok"]


async def test_a_probe_under_way_at_an_engine_that_stops_serving_shows_nothing(canary, api):
    api.held.clear()
    canary.probes.begin("e1", canary.engine)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not api.requests:  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0.002)
    canary.probes.forget("e1")
    api.held.set()
    assert await canary.begin() == {"canary": ""}
    assert len(api.requests) == 2


# Keys.

SECRET = "sk-engine-0123456789"


def with_key(file):
    return NodePolicy(engines={"e1": EnginePolicy(api_key_file=str(file))})


async def test_a_key_is_read_each_time_and_shown_to_the_engine_alone(api, tmp_path, caplog):
    file = tmp_path / "key"
    api.answers["/v1/completions"] = 401, {"error": {"message": f"bad key {SECRET}"}}
    async with trying(api, with_key(file), canary_seconds=CANARY_SECONDS) as tried:
        for key in SECRET, "another-key":
            file.write_text(f"{key}\n")
            await tried.begin(CANARY_SECONDS)
        assert [key for _, key, _ in api.requests] == [f"Bearer {SECRET}", "Bearer another-key"]
        file.write_text(SECRET)
        assert await tried.begin(CANARY_SECONDS) == {"canary": "refused_401: bad key ***"}
        assert "engine_probe_failed" in tried.kinds
    assert SECRET not in caplog.text


async def test_a_refusal_that_is_cut_in_the_middle_of_the_key_shows_no_part_of_it(api, tmp_path):
    file = tmp_path / "key"
    file.write_text(SECRET)
    api.answers["/v1/completions"] = 401, {"error": {"message": "x" * 190 + SECRET}}
    async with trying(api, with_key(file), canary_seconds=CANARY_SECONDS) as tried:
        assert await tried.begin() == {"canary": f"refused_401: {'x' * 190}***"}


@pytest.mark.parametrize("content", [b"", b"two words", b"a\r\nX-Header: b", "ключ".encode(), b"k" * 5000, b"\xff\x00"])
async def test_a_file_that_holds_no_key_is_said_without_its_content(api, tmp_path, content):
    file = tmp_path / "key"
    file.write_bytes(content)
    async with trying(api, with_key(file), canary_seconds=CANARY_SECONDS) as tried:
        failure = (await tried.begin())["canary"]
    assert failure == f"api_key_file: {file} must hold one key of printable characters, at most 4096 bytes"
    assert api.requests == []


async def test_a_key_that_cannot_be_read_is_said(api, tmp_path):
    async with trying(api, with_key(tmp_path / "none"), canary_seconds=CANARY_SECONDS) as tried:
        failure = (await tried.begin())["canary"]
    assert failure == f"api_key_file: {tmp_path / 'none'} cannot be read: No such file or directory"


async def test_a_disk_that_hangs_holds_up_no_loop_and_no_probe_longer_than_its_time(api, tmp_path):
    file = tmp_path / "key"
    os.mkfifo(file)
    async with trying(api, with_key(file), canary_seconds=CANARY_SECONDS, timeout_seconds=0.1) as tried:
        begun = asyncio.get_running_loop().time()
        assert await tried.begin() == {"canary": "api_key_file: it could not be read in time"}
        assert asyncio.get_running_loop().time() - begun < DEADLINE_SECONDS
        # The thread that waits for the disk is let go.
        os.close(os.open(file, os.O_WRONLY))
