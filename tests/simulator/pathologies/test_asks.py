from __future__ import annotations

import json
import random

import pytest

from simulator.lengths import LogNormal
from simulator.pathologies import asks
from simulator.tokenizer import Words, train_tokenizer

VISITS = {
    "users": asks.users("m", LogNormal(50), LogNormal(50)),
    "open_ended": asks.open_ended("m", LogNormal(50)),
    "documents": asks.documents("m", 100, 5),
    "writers": asks.writers("m", 20, 400),
    "mixed_sizes": asks.mixed_sizes("m", 20, 900, 0.5, 10),
    "leaving": asks.leaving("m", 20, 400, 0.5),
    "same_questions": asks.same_questions("m", 5, 20, 10),
    "variable_head": asks.variable_head("m", 200, 10),
    "forms": asks.forms("m", 50),
    "agents": asks.agents("m", (3, 4), 20),
    "runaway": asks.runaway("m", 20, 10),
    "retrieval": asks.retrieval("m", "e", 20, 3),
    "batch_lines": asks.batch_lines("m", LogNormal(50), 20),
}


@pytest.fixture(scope="module")
def words() -> Words:
    return Words(train_tokenizer())


def draws(words: Words, name: str, count: int = 40) -> list[list[asks.Ask]]:
    rng = random.Random(7)
    return [list(VISITS[name](asks.Draw(rng, words, number))) for number in range(count)]


@pytest.mark.parametrize("name", VISITS)
def test_what_is_drawn_follows_from_the_seed_alone(words: Words, name: str) -> None:
    assert draws(words, name) == draws(words, name)


@pytest.mark.parametrize("name", VISITS)
def test_every_request_is_json_and_names_a_model(words: Words, name: str) -> None:
    for visit in draws(words, name):
        assert visit
        assert all(json.loads(json.dumps(ask.body))["model"] in ("m", "e") for ask in visit)


def test_only_open_ended_requests_leave_their_length_open(words: Words) -> None:
    def is_open(ask: asks.Ask) -> bool:
        return "max_tokens" not in ask.body and ask.path in ("/v1/chat/completions", "/v1/completions")

    found = {name for name in VISITS if any(is_open(ask) for visit in draws(words, name) for ask in visit)}
    assert found == {"open_ended"}


def test_a_few_questions_make_up_all_that_is_asked(words: Words) -> None:
    asked = [visit[0].body["messages"][0]["content"] for visit in draws(words, "same_questions", 200)]
    assert len(set(asked)) == 5
    assert min(map(asked.count, set(asked))) > 20


def test_a_variable_head_stands_before_text_that_all_share(words: Words) -> None:
    texts = [visit[0].body["messages"][0]["content"] for visit in draws(words, "variable_head")]
    assert len({text[:40] for text in texts}) == len(texts)
    assert len({text[-256:] for text in texts}) == 1


def test_no_two_forms_have_the_same_schema(words: Words) -> None:
    schemas = [json.dumps(visit[0].body["response_format"]["json_schema"]["schema"]) for visit in draws(words, "forms")]
    assert len(set(schemas)) == len(schemas)


def test_a_runaway_agent_repeats_one_tool_call_in_one_session(words: Words) -> None:
    visit = draws(words, "runaway", 1)[0]
    assert len({ask.headers["x-session-id"] for ask in visit}) == 1
    calls = [json.dumps(turn["tool_calls"]) for turn in visit[-1].body["messages"] if turn.get("tool_calls")]
    assert len(calls) > 3
    assert len(set(calls)) == 1


def test_a_retrieval_asks_both_models_within_one_session(words: Words) -> None:
    visit = draws(words, "retrieval", 1)[0]
    assert [ask.path for ask in visit[:2]] == ["/v1/embeddings", "/v1/rerank"]
    assert [ask.body["model"] for ask in visit] == ["e", "e", "m", "m", "m"]
    assert len({ask.headers["x-session-id"] for ask in visit}) == 1


def test_who_leaves_does_so_long_before_the_answer_can_be_whole(words: Words) -> None:
    ask = draws(words, "leaving", 1)[0][0]
    assert ask.leave_after_seconds == 0.5
    assert ask.body["max_tokens"] == 400
