"""A question that means the same, over HTTP, with an engine that gives embeddings."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.caches.support import EMBEDDER, PATIENT, AnsweringEngine, cache_of, feedback, text_of, with_policy
from tests.gateway.fleet import MODEL, RunningGateway, changed, chat, running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = itertools.count()


class Words:
    """Two ways to ask one thing, and another thing, under a system prompt that no other test has."""

    def __init__(self, embedder: AnsweringEngine) -> None:
        self._topic = f"topic {next(_numbers)}"
        self.asked, self.again, self.other = "what is it", "it is what", "when is it"
        self._embedder = embedder
        embedder.vectors |= {self.asked: [1, 0, 0.1], self.again: [1, 0, 0.12], self.other: [0, 1, 0]}

    def ask(self, text: str, **fields: Any) -> dict[str, Any]:
        said = [{"role": "system", "content": self._topic}, {"role": "user", "content": text}]
        return chat(messages=said, **fields)

    def extended(self, prefix: str) -> tuple[str, str]:
        """Both ways, each with words before it."""
        asked, again = f"{prefix} {self.asked}", f"{prefix} {self.again}"
        self._embedder.vectors |= {asked: [1, 0, 0.1], again: [1, 0, 0.12]}
        return asked, again


@pytest.fixture
def words(embedder: AnsweringEngine) -> Words:
    return Words(embedder)


async def verdict(gateway: RunningGateway, request_id: str, said: str, wanted: str, tenant: str = "alpha") -> None:
    """Give feedback, as soon as the gateway remembers the request."""

    async def effect() -> str:
        status, told = await feedback(gateway, request_id, said, tenant)
        return str(told["effect"] if status == 200 else told["error"]["code"])

    first = await effect()
    if first == "unknown_request":
        await gateway.until(effect, wanted, "the request to be remembered")
    else:
        assert first == wanted


async def asked_and(gateway: RunningGateway, body: dict[str, Any], said: str = "liked", wanted: str = "kept") -> bytes:
    """The answer to a request, after a client has said so of it."""
    request_id = f"r-{next(_numbers)}"
    answer, _ = await cache_of(gateway, body, headers={"X-Request-Id": request_id})
    await verdict(gateway, request_id, said, wanted)
    return answer


@pytest.mark.parametrize("said", ["liked", "approved", "verified"])
async def test_an_approved_answer_is_given_to_who_asks_the_same_in_other_words(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words, said: str
):
    answer = await asked_and(semantic, words.ask(words.asked), said)
    again, state = await cache_of(semantic, words.ask(words.again))
    assert again == answer
    assert state.startswith("semantic; age=")
    assert float(state.rpartition("=")[2]) > 0.99
    assert (await cache_of(semantic, words.ask(words.other)))[1] == "miss"
    assert engine.asked == 2
    sent = embedder.bodies[0]
    assert (sent["model"], sent["input"]) == ("served-embed", words.asked)


async def test_an_answer_that_nobody_approved_is_given_to_nobody_and_nothing_is_embedded_for_it(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    await cache_of(semantic, words.ask(words.asked))
    assert (await cache_of(semantic, words.ask(words.again)))[1] == "miss"
    assert (engine.asked, embedder.asked) == (2, 0)


async def test_a_stream_is_given_again_as_a_stream(semantic: RunningGateway, engine: AnsweringEngine, words: Words):
    answer = await asked_and(semantic, words.ask(words.asked, stream=True))
    again, state = await cache_of(semantic, words.ask(words.again, stream=True))
    assert again == answer
    assert again.endswith(b"data: [DONE]\n\n")
    assert state.startswith("semantic")
    assert (await cache_of(semantic, words.ask(words.again)))[1] == "miss"


async def test_tenants_and_other_parameters_never_share(
    semantic: RunningGateway, engine: AnsweringEngine, words: Words
):
    await asked_and(semantic, words.ask(words.asked))
    assert (await cache_of(semantic, words.ask(words.again), tenant="beta"))[1] == "miss"
    assert (await cache_of(semantic, words.ask(words.again, temperature=0.1)))[1] == "miss"
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": words.again}]
    assert (await cache_of(semantic, chat(messages=said)))[1] == "miss"
    assert (await cache_of(semantic, words.ask(words.again)))[1].startswith("semantic")


@pytest.mark.parametrize(
    ("prefix", "more"),
    [
        ("for my project", {}),
        ("for order 123456", {}),
        ("for ayse@example.com", {}),
        ("for Ayşe Yılmaz", {}),
        ("for all", {"user": "ayse"}),
        ("for all", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("for all", {"session": True}),
    ],
)
async def test_what_is_somebodys_own_is_never_kept_for_others(
    semantic: RunningGateway,
    engine: AnsweringEngine,
    embedder: AnsweringEngine,
    words: Words,
    prefix: str,
    more: dict[str, Any],
):
    asked, again = words.extended(prefix)
    headers = {"X-Session-Id": "s-1"} if "session" in more else {}
    fields = {name: value for name, value in more.items() if name != "session"}
    request_id = f"r-{next(_numbers)}"
    await cache_of(semantic, words.ask(asked, **fields), headers={"X-Request-Id": request_id, **headers})
    await verdict(semantic, request_id, "verified", "none")
    assert (await cache_of(semantic, words.ask(again, **fields), headers=headers))[1] == "miss"
    assert embedder.asked == 0


async def test_turns_of_a_talk_are_never_kept_for_others(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"}]
    await asked_and(semantic, chat(messages=[*talk, {"role": "user", "content": words.asked}]), "liked", "none")
    assert embedder.asked == 0


async def test_a_wrong_hit_is_given_to_nobody_any_more_and_is_counted_apart(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    labels = {"cache": "semantic", "tenant": "alpha", "model": MODEL}

    async def counts() -> list[float]:
        names = ("cache_hits", "cache_wrong_hits")
        return [await semantic.metric(f"headworks_gateway_{name}_total", **labels) for name in names]

    hits, wrong = await counts()
    answer = await asked_and(semantic, words.ask(words.asked))
    assert await asked_and(semantic, words.ask(words.again), "wrong", "evicted") == answer
    assert await counts() == [hits + 1, wrong + 1]
    assert (await cache_of(semantic, words.ask(words.again)))[1] == "miss"
    # Its own words were answered rightly: they still are.
    assert (await cache_of(semantic, words.ask(words.asked)))[0] == answer

    # Approved anew it is not given to the question that got it wrongly.
    request_id = f"r-{next(_numbers)}"
    fresh = {"Cache-Control": "no-cache", "X-Request-Id": request_id}
    await cache_of(semantic, words.ask(words.asked), headers=fresh)
    await verdict(semantic, request_id, "approved", "kept")
    embedder.vectors |= {"as far away": [1, 0, 0.12], "nearer": [1, 0, 0.11]}
    assert (await cache_of(semantic, words.ask("as far away")))[1] == "miss"
    assert (await cache_of(semantic, words.ask("nearer")))[1].startswith("semantic")


async def test_who_likes_an_answer_of_the_exact_cache_approves_it(
    semantic: RunningGateway, engine: AnsweringEngine, words: Words
):
    answer, _ = await cache_of(semantic, words.ask(words.asked))

    async def state() -> str:
        return (await cache_of(semantic, words.ask(words.asked)))[1].partition(";")[0]

    await semantic.until(state, "exact", "the answer to be kept")
    assert await asked_and(semantic, words.ask(words.asked)) == answer
    assert (await cache_of(semantic, words.ask(words.again)))[0] == answer


async def test_an_answer_of_the_exact_cache_that_is_wrong_is_given_to_nobody_any_more(
    semantic: RunningGateway, engine: AnsweringEngine, words: Words
):
    answer = await asked_and(semantic, words.ask(words.asked))
    assert await asked_and(semantic, words.ask(words.asked), "wrong", "evicted") == answer
    assert text_of((await cache_of(semantic, words.ask(words.asked)))[0]) != text_of(answer)
    assert (await cache_of(semantic, words.ask(words.again)))[1] == "miss"


def poisoned(document: Any) -> Any:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(text=document if isinstance(document, str) else json.dumps(document))

    return answer


@pytest.mark.parametrize(
    "document",
    [
        '{"data": [{"embedding": [NaN, 1, 0]}]}',
        '{"data": [{"embedding": [1e999, 1, 0]}]}',
        {"data": [{"embedding": [0, 0, 0]}]},
        {"data": [{"embedding": [1, 0]}]},
        {"data": [{"embedding": [1.0] * 20_000}]},
        {"data": [{"embedding": []}]},
        {"data": []},
        {"data": [{"embedding": [1, 0, 0.1]}, {"embedding": [1, 0, 0.1]}]},
        {"data": [{"embedding": "AACAPw=="}]},
        {"error": {"message": "out of memory", "code": 500}},
        "no JSON",
        "",
        "[" * 5_000,
        "x" * 2_000_000,
    ],
)
async def test_rubbish_from_the_embedding_engine_is_a_miss_and_is_never_kept(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words, document: Any
):
    answer = await asked_and(semantic, words.ask(words.asked))
    embedder.behave = poisoned(document)
    assert (await cache_of(semantic, words.ask(words.again)))[1] == "miss"
    await asked_and(semantic, words.ask(words.other), "liked", "none")
    embedder.behave = embedder.embed
    assert (await cache_of(semantic, words.ask(words.again, n=1, seed=None)))[1] == "miss"
    # The right entry has survived it.
    assert (await cache_of(semantic, words.ask(words.asked)))[0] == answer
    unasked = f"{words.again} then"
    embedder.vectors[unasked] = [1, 0, 0.11]
    assert (await cache_of(semantic, words.ask(unasked)))[0] == answer


async def test_an_answer_that_could_not_be_approved_can_be_once_the_embedding_engine_is_back(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    request_id = f"r-{next(_numbers)}"
    answer, _ = await cache_of(semantic, words.ask(words.asked), headers={"X-Request-Id": request_id})
    embedder.behave = embedder.failing(503)
    await verdict(semantic, request_id, "liked", "none")
    embedder.behave = embedder.embed
    await verdict(semantic, request_id, "liked", "kept")
    await verdict(semantic, request_id, "liked", "none")
    assert (await cache_of(semantic, words.ask(words.again)))[0] == answer


async def test_an_embedding_engine_that_refuses_or_is_cut_off_is_a_miss(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    answer = await asked_and(semantic, words.ask(words.asked))
    for number, behaviour in enumerate((embedder.failing(503), embedder.cut)):
        embedder.behave = behaviour
        asked = f"{words.again} {number}"
        embedder.vectors[asked] = [1, 0, 0.12]
        assert (await cache_of(semantic, words.ask(asked)))[1] == "miss"
    embedder.behave = embedder.embed
    assert (await cache_of(semantic, words.ask(words.again)))[0] == answer


async def test_a_client_that_leaves_while_its_question_is_embedded_leaves_the_engine_alone(
    semantic: RunningGateway, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    await asked_and(semantic, words.ask(words.asked))
    embedder.behave = embedder.silence
    embedder.arrived.clear()
    asking = asyncio.ensure_future(cache_of(semantic, words.ask(words.again)))
    await embedder.arrived.wait()
    asking.cancel()
    await semantic.until_left(embedder)
    asked = engine.asked

    async def running() -> float:
        return await semantic.metric("headworks_gateway_requests_in_flight")

    await semantic.until(running, 0, "the request to end")
    assert engine.asked == asked


# With a gateway of their own


async def test_an_embedding_engine_that_is_slow_costs_its_time_once(
    tmp_path, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    environment = {
        "HEADWORKS_GATEWAY_CACHE_EMBEDDING_TIMEOUT_SECONDS": "1",
        "HEADWORKS_GATEWAY_CACHE_EMBEDDING_PAUSE_SECONDS": "600",
    }
    async with running_gateway(tmp_path, with_policy(engine.url, embedder.url), environment) as gateway:
        await asked_and(gateway, words.ask(words.asked))
        embedder.behave = embedder.silence
        begun = time.monotonic()
        assert (await cache_of(gateway, words.ask(words.again)))[1] == "miss"
        assert 1 <= time.monotonic() - begun < 4
        asked = embedder.asked
        assert (await cache_of(gateway, words.ask(words.other)))[1] == "miss"
        assert embedder.asked == asked
        reasons = {
            reason: await gateway.metric(
                "headworks_gateway_cache_embedding_failures_total", model=EMBEDDER, reason=reason
            )
            for reason in ("slow", "no_engine")
        }
        assert reasons == {"slow": 1, "no_engine": 1}


async def test_a_cordoned_embedding_engine_is_not_asked_and_another_model_begins_anew(
    tmp_path, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    content = with_policy(engine.url, embedder.url)
    async with running_gateway(tmp_path, content, PATIENT) as gateway:
        answer = await asked_and(gateway, words.ask(words.asked))
        cordoned = {**content["engines"]["embedder"], "cordoned": True}
        await gateway.publish(changed(content, engines__embedder=cordoned))
        asked = embedder.asked
        assert (await cache_of(gateway, words.ask(words.other)))[1] == "miss"
        assert embedder.asked == asked
        await gateway.publish(content)
        assert (await cache_of(gateway, words.ask(words.again)))[0] == answer
        # Vectors of another model are not compared with those that are there.
        other = {**content["engines"]["embedder"], "served_model": "served-embed-v2"}
        await gateway.publish(changed(content, engines__embedder=other))
        assert (await cache_of(gateway, words.ask(words.again)))[1] == "miss"


async def test_time_bound_questions_are_kept_for_their_own_time(
    tmp_path, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    policy = {"embedding_model": EMBEDDER, "time_bound": {"stok": True}, "time_bound_ttl_ms": 0}
    content = with_policy(engine.url, embedder.url, semantic=policy)
    async with running_gateway(tmp_path, content, PATIENT) as gateway:
        asked, again = words.extended("stok:")
        await asked_and(gateway, words.ask(asked), "liked", "none")
        assert (await cache_of(gateway, words.ask(again)))[1] == "miss"
        answer = await asked_and(gateway, words.ask(words.asked))
        assert (await cache_of(gateway, words.ask(words.again)))[0] == answer


async def test_a_policy_may_give_answers_that_nobody_approved(
    tmp_path, engine: AnsweringEngine, embedder: AnsweringEngine, words: Words
):
    content = with_policy(engine.url, embedder.url, semantic={"embedding_model": EMBEDDER, "only_verified": False})
    async with running_gateway(tmp_path, content, PATIENT) as gateway:
        answer, _ = await cache_of(gateway, words.ask(words.asked))
        # It is kept just after it was sent, which a request to the same gateway comes after.
        await gateway.metric("headworks_gateway_cache_bytes")
        assert (await cache_of(gateway, words.ask(words.again)))[0] == answer
        assert await asked_and(gateway, words.ask(words.again), "wrong", "evicted") == answer
        assert (await cache_of(gateway, words.ask(words.again)))[1] == "miss"

        # A stricter policy holds for what is there: this one was never approved, that one is now.
        request_id = f"r-{next(_numbers)}"
        await cache_of(gateway, words.ask(words.other), headers={"X-Request-Id": request_id})
        embedder.vectors |= {"when": [0, 1, 0.1], "at what time": [0, 1, 0.1]}
        assert (await cache_of(gateway, words.ask("when")))[1].startswith("semantic")
        await gateway.publish(with_policy(engine.url, embedder.url))
        assert (await cache_of(gateway, words.ask("at what time")))[1] == "miss"
        await verdict(gateway, request_id, "approved", "kept")
        embedder.vectors["at which time"] = [0, 1, 0.1]
        assert (await cache_of(gateway, words.ask("at which time")))[1].startswith("semantic")
