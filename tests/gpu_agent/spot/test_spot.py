"""Notices of a metadata server on loopback, as each cloud has it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpu_agent.events import Reporter
from gpu_agent.spot.sources import Notice, NotKnown, source_of
from gpu_agent.spot.watch import SpotWatch
from tests.services import free_port

AT = datetime(2026, 3, 1, 12, 2, tzinfo=UTC)
NOW = datetime(2026, 3, 1, 12, 0, 2, tzinfo=UTC)
ACTION = '{"action": "terminate", "time": "2026-03-01T12:02:00Z"}'
EVENTS = """{"DocumentIncarnation": 1, "Events": [
    {"EventId": "1", "EventType": "Reboot", "Resources": ["vm-1"], "NotBefore": ""},
    {"EventId": "2", "EventType": "Preempt", "Resources": ["%s"], "NotBefore": "Sun, 01 Mar 2026 12:02:00 GMT"}]}"""


class Cloud:
    """`answers`: path → (status, body). Paths under /latest want a token, the first of which is taken once only."""

    def __init__(self):
        self.answers, self.asked, self.tokens = {}, [], 0

    async def answer(self, request):
        self.asked.append(request.path)
        if request.method == "PUT":
            assert request.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
            self.tokens += 1
            return web.Response(text=f"token-{self.tokens}")
        headers = request.headers
        given = headers.get("X-aws-ec2-metadata-token") or headers.get("Metadata-Flavor") or headers.get("Metadata")
        wanted = f"token-{max(2, self.tokens)}" if request.path.startswith("/latest") else given
        if given is None or given != wanted:
            return web.Response(status=401)
        status, body = self.answers.get(request.path, (404, ""))
        return web.Response(status=status, text=body)


@asynccontextmanager
async def asking(cloud, setting):
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", cloud.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with aiohttp.ClientSession() as session:
            yield source_of(setting, session, f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()


async def test_aws_is_asked_with_a_token_that_is_renewed():
    cloud = Cloud()
    async with asking(cloud, "aws") as ask:
        assert await ask() is None
        assert cloud.tokens == 2, "the first is no longer taken"
        cloud.answers["/latest/meta-data/spot/instance-action"] = (200, ACTION)
        assert await ask() == Notice("AWS will terminate it", AT)
        assert cloud.tokens == 2


async def test_google_says_true_once_it_preempts():
    cloud, path = Cloud(), "/computeMetadata/v1/instance/preempted"
    async with asking(cloud, "gcp") as ask:
        for body, found in (("FALSE", None), ("TRUE\n", Notice("Google Cloud preempts it"))):
            cloud.answers[path] = (200, body)
            assert await ask() == found


async def test_azure_tells_of_other_machines_too():
    cloud = Cloud()
    cloud.answers["/metadata/instance/compute/name"] = (200, "vm-1")
    async with asking(cloud, "azure") as ask:
        for name, found in (("vm-2", None), ("vm-1", Notice("Azure will preempt it", AT))):
            cloud.answers["/metadata/scheduledevents"] = (200, EVENTS % name)
            assert await ask() == found
    assert cloud.asked.count("/metadata/instance/compute/name") == 1


@pytest.mark.parametrize(
    ("text", "at"), [("", None), ("soon", None), ("2026-03-01T12:02:00Z", AT), ("2026-03-01T12:02:00", None)]
)
async def test_a_file_is_a_notice_with_the_time_that_it_holds(tmp_path, text, at):
    file = tmp_path / "notice"
    async with asking(Cloud(), f"file:{file}") as ask:
        assert await ask() is None
        file.write_text(text)
        assert await ask() == Notice(f"{file} says so", at)


@pytest.mark.parametrize(
    ("setting", "path", "answer"),
    [
        ("aws", "/latest/meta-data/spot/instance-action", (500, "")),
        ("aws", "/latest/meta-data/spot/instance-action", (200, "{}")),
        ("gcp", "/computeMetadata/v1/instance/preempted", (302, "")),
        ("azure", "/metadata/instance/compute/name", (404, "")),
    ],
)
async def test_a_server_that_answers_otherwise_says_nothing(setting, path, answer):
    cloud = Cloud()
    cloud.answers[path] = answer
    async with asking(cloud, setting) as ask:
        with pytest.raises(NotKnown, match=path.rpartition("/")[2]):
            await ask()


class Told:
    """A watch, and the events it made."""

    def __init__(self, folder):
        self.events: list[Any] = []
        self.watch = SpotWatch("aws", "node-1", Reporter("node-1", self.events.append), folder / "spot_notice.json")

    async def look(self, answer):
        async def ask():
            if isinstance(answer, Exception):
                raise answer
            return answer

        await self.watch.look(ask, lambda: NOW)


async def test_a_notice_is_told_once_with_the_time_that_is_left(tmp_path):
    told, again = Told(tmp_path), Told(tmp_path / "another")
    notice = Notice("AWS will terminate it", AT)
    for answer in (None, notice, notice, NotKnown("no answer")):
        await told.look(answer)
    (event,) = told.events
    assert (event.kind, event.subject, event.severity) == ("spot_notice", "node-1", "critical")
    assert event.detail == (
        "this machine will be taken away in 118 s, at 2026-03-01 12:02:00 UTC: AWS will terminate it"
    )
    assert told.watch.leaving, "while nobody answers it holds"
    await again.look(notice)
    assert again.events[0].id == event.id, "an agent that starts again tells the same"


async def test_a_notice_that_is_taken_back_is_told(tmp_path):
    told = Told(tmp_path)
    for answer in (Notice("a file says so"), None, None):
        await told.look(answer)
    assert [event.kind for event in told.events] == ["spot_notice", "spot_notice_ended"]
    assert not told.watch.leaving


async def test_one_that_is_taken_back_while_the_agent_was_away_is_told_by_the_next_one(tmp_path):
    before = Told(tmp_path)
    await before.look(Notice("AWS will terminate it", AT))
    after = Told(tmp_path)
    assert after.watch.leaving, "until somebody says otherwise"
    await after.look(NotKnown("no answer"))
    assert (after.events, after.watch.leaving) == ([], True)
    await after.look(None)
    assert [event.kind for event in after.events] == ["spot_notice_ended"]
    later = Told(tmp_path)
    await later.look(None)
    assert (later.events, later.watch.leaving) == ([], False)


async def test_one_that_still_holds_when_the_agent_starts_again_is_not_told_twice(tmp_path):
    for told in (1, 0):
        agent = Told(tmp_path)
        await agent.look(Notice("AWS will terminate it", AT))
        assert (len(agent.events), agent.watch.leaving) == (told, True)


async def test_one_that_is_back_after_its_end_was_told_is_another(tmp_path):
    told = Told(tmp_path)
    for answer in (Notice("AWS will terminate it", AT), None, Notice("AWS will terminate it", AT)):
        await told.look(answer)
    first, _, second = told.events
    assert (second.kind, second.id == first.id) == ("spot_notice", False)


@pytest.mark.parametrize("kept", ["", "[1]", '["a", "b", "c"]', "\0", "[" * 5000])
async def test_a_damaged_file_is_no_notice(tmp_path, kept):
    (tmp_path / "spot_notice.json").write_text(kept)
    assert not Told(tmp_path).watch.leaving
