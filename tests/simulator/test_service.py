"""Answers that need another side than a test's own client: a foreign machine, a fault in the engine itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from simulator.generation import Generator
from simulator.http_parser import HttpRequest
from simulator.http_server import Exchange
from simulator.lengths import LogNormal
from simulator.metrics import EngineMetrics
from simulator.scheduler import Limits, Scheduler, StepCost
from simulator.service import EngineService
from simulator.tokenizer import train_tokenizer


@dataclass
class RecordedExchange:
    """An exchange with a client at `from_loopback`, that keeps its answer."""

    path: bytes
    body: dict[str, Any]
    from_loopback: bool = True
    open: bool = True
    answers: list[tuple[int, Any]] = field(default_factory=list)

    @property
    def request(self) -> HttpRequest:
        return HttpRequest(b"POST", self.path, {}, msgspec.json.encode(self.body), keep_alive=True)

    def answer(self, status: int, body: bytes) -> None:
        self.answers.append((status, json.loads(body)))


@pytest.fixture
def generator() -> Generator:
    return Generator(train_tokenizer(), ["m"], 8192, LogNormal(median_tokens=10), seed=0)


@pytest.fixture
def service(generator: Generator) -> EngineService:
    limits = Limits()
    return EngineService(generator, EngineMetrics("m", Scheduler(limits, StepCost())), limits, core=None)


def answer(service: EngineService, exchange: RecordedExchange) -> tuple[int, Any]:
    service(cast(Exchange, exchange))
    assert len(exchange.answers) == 1
    return exchange.answers[0]


def test_faults_are_not_taken_from_another_machine(service: EngineService) -> None:
    fault = RecordedExchange(b"/simulator/fault", {"kind": "error_500"}, from_loopback=False)
    assert answer(service, fault)[0] == 403
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 1}
    assert answer(service, RecordedExchange(b"/v1/chat/completions", chat))[0] == 200


def test_an_instant_engine_cannot_be_slow(service: EngineService) -> None:
    status, body = answer(service, RecordedExchange(b"/simulator/fault", {"kind": "slow"}))
    assert (status, body["error"]["param"]) == (400, "kind")


def test_a_dropped_format_is_dropped_without_a_word_also_for_a_request_that_was_answered_before(
    service: EngineService,
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "probe", "schema": {"enum": ["red", "green"]}}}
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "response_format": form}

    def obeys() -> bool:
        status, body = answer(service, RecordedExchange(b"/v1/chat/completions", chat))
        assert status == 200
        return body["choices"][0]["message"]["content"] in ('"red"', '"green"')

    assert obeys()
    for kind, expected in (("drop_format", False), ("none", True)):
        answer(service, RecordedExchange(b"/simulator/fault", {"kind": kind}))
        assert obeys() == expected


def test_tokenize_takes_a_prompt_or_messages(service: EngineService) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert answer(service, RecordedExchange(b"/tokenize", {"messages": messages}))[1]["count"] > 5
    for body in ({}, {"prompt": "hi", "messages": messages}):
        assert answer(service, RecordedExchange(b"/tokenize", body))[0] == 400


def test_a_defect_is_a_500_that_says_where_to_look(
    service: EngineService, generator: Generator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(chat: bool, body: bytes) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(generator, "plan", broken)
    status, body = answer(service, RecordedExchange(b"/v1/completions", {}))
    assert (status, body["error"]["type"]) == (500, "InternalServerError")
    assert "a defect" in caplog.text
