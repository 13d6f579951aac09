from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from msgspec import UNSET

from gpu_agent.engines.look import Wanted, look_at
from gpu_agent.engines.pages import EnginePages
from gpu_agent.policy import EnginePolicy, NodePolicy
from tests.gpu_agent.fake_engine import VLLM_METRICS
from tests.services import free_port
from tests.wire.engine_pages.reading import page_of
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.messages import EngineReport
from wire.snapshot import NodeEngine


@pytest.fixture
async def hasty_pages():
    """Patient enough for an engine that answers, on a busy machine too."""
    pages = EnginePages(timeout_seconds=2, limit_bytes=100_000)
    yield pages
    await pages.close()


def vllm(url: str) -> NodeEngine:
    return NodeEngine(url, "vllm", "short", "llama")


async def test_a_vllm_engine_that_answers_is_up(engine, pages):
    seen = (await look_at(pages, "e1", vllm(engine.url))).report
    assert seen == EngineReport("e1", "up", version="0.32.0", kv_capacity_tokens=1_048_576)


async def test_an_engine_is_given_no_credentials(engine, pages):
    await look_at(pages, "e1", vllm(engine.url))
    assert len(engine.requests) == 3
    assert all("Authorization" not in request.headers for request in engine.requests)


async def test_an_engine_that_is_not_there_is_down(pages):
    seen = (await look_at(pages, "e1", vllm(f"http://127.0.0.1:{free_port()}"))).report
    assert seen.state == "down"
    assert str(seen.error).startswith("/health: ")


@pytest.mark.parametrize("status", [503, 500, 404, 302])
async def test_an_engine_that_fails_its_health_check_is_down(engine, pages, status):
    engine.pages["/health"] = (status, b"")
    seen = (await look_at(pages, "e1", vllm(engine.url))).report
    assert seen == EngineReport("e1", "down", error=f"/health: answered {status}", condition="dead")


async def test_an_engine_that_hangs_is_down(engine, hasty_pages):
    engine.hung.add("/health")
    seen = (await look_at(hasty_pages, "e1", vllm(engine.url))).report
    assert seen == EngineReport("e1", "down", error="/health: no answer in time", condition="unreachable")


async def test_an_engine_where_nobody_listens_is_dead_and_said_to_have_refused(pages):
    look = await look_at(pages, "e1", vllm(f"http://127.0.0.1:{free_port()}"))
    assert (look.report.condition, look.refused) == ("dead", True)


async def test_an_engine_that_closes_the_connection_is_dead_and_has_not_refused(pages):
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        look = await look_at(pages, "e1", vllm(f"http://127.0.0.1:{port}"))
    assert (look.report.condition, look.refused) == ("dead", False)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "-", "a" * 64])
async def test_an_engine_whose_host_has_no_address_is_unreachable(pages, host):
    look = await look_at(pages, "e1", vllm(f"http://{host}:8000"))
    assert (look.report.state, look.report.condition, look.refused) == ("down", "unreachable", False)


async def test_what_cannot_be_read_is_left_out_and_said(engine, pages):
    engine.pages["/version"] = (200, b"<html>")
    engine.pages["/metrics"] = (200, b"x" * 100_001)
    seen = (await look_at(pages, "e1", vllm(engine.url))).report
    assert (seen.state, seen.version, seen.kv_capacity_tokens) == ("up", UNSET, UNSET)
    assert "/version: " in str(seen.error)
    assert "/metrics: answered more than 100000 bytes" in str(seen.error)


async def test_a_hung_metrics_page_does_not_hide_that_the_engine_is_up(engine, hasty_pages):
    engine.hung.add("/metrics")
    seen = (await look_at(hasty_pages, "e1", vllm(engine.url))).report
    assert (seen.state, seen.version) == ("up", "0.32.0")
    assert seen.error == "/metrics: no answer in time"


async def test_pages_that_hang_share_one_deadline_and_hold_back_none_that_answers(engine, hasty_pages):
    engine.hung |= {"/version", "/metrics"}
    look = asyncio.create_task(look_at(hasty_pages, "e1", vllm(engine.url)))
    async with asyncio.timeout(DEADLINE_SECONDS):
        while len(engine.requests) < 3:  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0.005)
    assert not look.done(), "the last page is asked for while the one before still hangs"
    seen = (await look).report
    assert (seen.state, seen.error) == ("up", "/version: no answer in time; /metrics: no answer in time")


@pytest.mark.parametrize(
    ("kind", "pages_of_kind"),
    [
        (
            "triton",
            {
                "/v2/health/ready": (200, b""),
                "/v2": (200, b'{"name":"triton","version":"2.61.0"}'),
                "/metrics": (200, b'nv_inference_request_success{model="m"} 1\n'),
            },
        ),
        (
            "trtllm",
            {
                "/health": (200, b""),
                "/version": (200, b'{"version":"2.61.0"}'),
                "/prometheus/metrics": (200, b"trtllm_num_requests_running 1\n"),
            },
        ),
        ("ollama", {"/api/version": (200, b'{"version":"2.61.0"}')}),
        (
            "tgi",
            {
                "/health": (200, b""),
                "/info": (200, b'{"version":"2.61.0","model_id":"m"}'),
                "/metrics": (200, page_of("tgi")),
            },
        ),
    ],
)
async def test_other_kinds_are_asked_at_their_own_pages(engine, pages, kind, pages_of_kind):
    engine.pages = pages_of_kind
    seen = (await look_at(pages, "e1", NodeEngine(engine.url, kind, "short", "llama"))).report
    assert seen == EngineReport("e1", "up", version="2.61.0")


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("sglang", ["/health", "/metrics"]),
        ("llamacpp", ["/health", "/metrics", "/slots"]),
        ("trtllm", ["/health", "/prometheus/metrics", "/version"]),
    ],
)
async def test_a_page_that_a_server_does_not_have_is_no_failure(engine, pages, kind, paths):
    engine.pages = {"/health": (200, b""), **{path: (200, page_of(kind)) for path in paths if "metrics" in path}}
    look = await look_at(pages, "e1", NodeEngine(engine.url, kind, "short", "llama"))
    assert look.report.state == "up"
    assert look.report.error is UNSET
    assert look.numbers
    assert sorted(request.path for request in engine.requests) == paths


async def test_one_read_of_the_metrics_page_serves_capacity_and_numbers(engine, pages):
    before_ms = time.time_ns() // 1_000_000
    look = await look_at(pages, "e1", vllm(engine.url))
    assert sorted(request.path for request in engine.requests) == ["/health", "/metrics", "/version"]
    assert ("generation_tokens_total", (), 150) in look.numbers
    assert before_ms <= look.at_ms <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b"<html></html>\n", {"Content-Type": "text/html"}, "not_metrics: the page is text/html, not text/plain"),
        (b"{}\n", {"Content-Type": "application/json"}, "not_metrics: the page is application/json, not text/plain"),
        (VLLM_METRICS[:20_000], {}, "cut_short: the page ends in the middle; it must end with a line end"),
        (gzip.compress(VLLM_METRICS), {"Content-Encoding": "gzip"}, "Content-Encoding 'gzip', which was not asked for"),
        (b"\xff\xfe" * 200, {}, "not_metrics: the page has no metric of vllm's"),
    ],
)
async def test_what_is_no_metrics_page_leaves_the_engine_up_and_gives_no_number(engine, pages, body, headers, reason):
    engine.pages["/metrics"] = (200, body)
    engine.headers |= headers
    look = await look_at(pages, "e1", vllm(engine.url))
    assert (look.report.state, look.report.kv_capacity_tokens, look.numbers) == ("up", UNSET, [])
    assert reason in str(look.report.error)


async def test_a_metrics_page_that_fails_leaves_the_engine_up_and_is_said(engine, pages):
    # As vLLM's is while the directory that its processes share lies on a network volume.
    engine.pages["/metrics"] = (500, b"Internal Server Error")
    look = await look_at(pages, "e1", vllm(engine.url))
    assert (look.report.state, look.report.version, look.numbers, look.own) == ("up", "0.32.0", [], [])
    assert look.report.error == "/metrics: answered 500"


async def test_the_nodes_policy_says_where_the_metrics_page_is(engine, pages):
    engine.pages = {"/v2/health/ready": (200, b""), "/8002/metrics": (200, page_of("triton"))}
    triton = NodeEngine(engine.url, "triton", "short", "llama", served_model="llama")
    policy = NodePolicy(engines={"e1": EnginePolicy(metrics_url=f"{engine.url}/8002/metrics")})
    look = await look_at(pages, "e1", triton, Wanted(policy))
    assert look.report.error is UNSET
    assert ("requests_waiting", (), 6) in look.numbers
    unsaid = await look_at(pages, "e2", triton, Wanted(policy))
    assert "name Triton's metrics page as metrics_url in this node's policy" in str(unsaid.report.error)


async def test_slots_say_what_the_metrics_page_does_not(engine, pages):
    slots = b'[{"n_ctx":4096,"is_processing":true,"n_prompt_tokens":1024}]'
    engine.pages = {"/health": (200, b""), "/metrics": (200, page_of("llamacpp")), "/slots": (200, slots)}
    llamacpp = NodeEngine(engine.url, "llamacpp", "short", "llama")
    look = await look_at(pages, "e1", llamacpp)
    assert look.report.kv_capacity_tokens == 4096
    assert ("kv_cache_usage_ratio", (), 0.25) in look.numbers
    engine.pages["/metrics"] = (200, page_of("llamacpp") + b"llamacpp:kv_cache_usage_ratio 0.5\n")
    numbers = (await look_at(pages, "e1", llamacpp)).numbers
    assert [reading.value for reading in numbers if reading.name == "kv_cache_usage_ratio"] == [0.5]


async def test_one_page_is_read_once_for_all_that_it_says(engine, pages):
    info = b'{"version":"2.0.1","model_id":"m","max_batch_total_tokens":32000}'
    engine.pages = {"/health": (200, b""), "/info": (200, info), "/metrics": (200, page_of("tgi"))}
    seen = (await look_at(pages, "e1", NodeEngine(engine.url, "tgi", "short", "llama"))).report
    assert seen == EngineReport("e1", "up", version="2.0.1", kv_capacity_tokens=32_000)
    assert sorted(request.path for request in engine.requests) == ["/health", "/info", "/metrics"]


async def test_ranks_and_an_engines_own_series_come_with_its_look(engine, pages):
    ranks = b"".join(b'vllm:num_requests_running{engine="%d"} %d\n' % (rank, rank) for rank in range(2))
    engine.pages["/metrics"] = (200, ranks + b'vllm:lora_requests_info{engine="1"} 3\n')
    look = await look_at(pages, "e1", vllm(engine.url))
    assert look.ranks["1"] == [("requests_running", (), 1)]
    assert look.own == [("vllm:lora_requests_info", {"rank": "1"}, 3)]
    assert (await look_at(pages, "e1", vllm(engine.url), Wanted(own_series=()))).own == []


async def test_own_series_that_cannot_pass_are_named_and_cost_no_number(engine, pages):
    many = b"".join(b'vllm:lora_requests_info{adapter="%d"} 1\n' % place for place in range(501))
    engine.pages["/metrics"] = (200, b"vllm:num_requests_running 1\n" + many)
    look = await look_at(pages, "e1", vllm(engine.url))
    assert look.numbers == [("requests_running", (), 1)]
    assert look.own == []
    assert str(look.report.error).startswith("/metrics: too_many_own_series: ")


async def test_what_an_engine_says_stays_one_line(engine, pages):
    engine.pages["/version"] = (200, b'{"version":"0.32.0\\n2026-01-01 CRITICAL all is lost"}')
    assert (await look_at(pages, "e1", vllm(engine.url))).report.version == "0.32.0 2026-01-01 CRITICAL all is lost"
    async with answering(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        error = str((await look_at(pages, "e1", vllm(url))).report.error)
    assert error.startswith("/health: 400, message")
    assert "\n" not in error


async def test_a_host_that_cannot_be_a_name_is_an_engine_that_is_down(pages):
    seen = (await look_at(pages, "e1", vllm("http://gpu..site:8000"))).report
    assert seen.state == "down"
    assert "label empty" in str(seen.error)


async def test_a_page_without_end_is_given_up_at_its_limit(pages):
    async with endless_engine() as url:
        look = await look_at(pages, "e1", vllm(url))
    assert (look.report.state, look.numbers) == ("up", [])
    assert "/metrics: answered more than 100000 bytes" in str(look.report.error)


@asynccontextmanager
async def answering(raw):
    """Something that is no web server."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def endless_engine():
    async def endless(request):
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"# HELP nothing\n" * 100)
        return response

    async def version(request):
        return web.json_response({"version": "1"})

    application = web.Application()
    application.router.add_get("/metrics", endless)
    application.router.add_get("/{path:.*}", version)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
