"""What clients ask, well-behaved ones and others: each of these draws the next request of one kind of client. Pure.

A visit is what one user or agent wants at a time: requests that follow each other. `number` counts a kind's visits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.lengths import LengthDistribution, LogNormal
from simulator.tokenizer import Words

_TOOL = {"id": "call-1", "type": "function", "function": {"name": "search", "arguments": '{"query": "leave policy"}'}}


@dataclass(frozen=True)
class Ask:
    """One request. `leave_after_seconds`: when its client goes away; None: it stays."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    leave_after_seconds: float | None = None


@dataclass(frozen=True)
class Draw:
    """What a visit is drawn from."""

    rng: random.Random
    words: Words
    number: int

    def text(self, tokens: int) -> str:
        return self.words.text(self.words.draw(self.rng, tokens))


Visit = Callable[[Draw], Sequence[Ask]]


def chat(model: str, text: str, max_tokens: int | None, **more: Any) -> Ask:
    """A stream of a chat. `max_tokens` of None leaves the length open."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}], "stream": True, **more}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    return Ask("/v1/chat/completions", body)


def users(model: str, prompts: LengthDistribution, outputs: LengthDistribution) -> Visit:
    """Interactive users: heavy-tailed prompts and answers, of a bounded length."""
    return lambda draw: [chat(model, draw.text(prompts.draw(draw.rng)), outputs.draw(draw.rng))]


def open_ended(model: str, prompts: LengthDistribution) -> Visit:
    """Users whose requests leave it to the server how much is written. Source: seed 1, section 10."""
    return lambda draw: [chat(model, draw.text(prompts.draw(draw.rng)), None)]


def documents(model: str, prompt_tokens: int, max_tokens: int) -> Visit:
    """Texts of one length with short answers, of a job that waits for whole answers. Source: seed 1, section 1."""

    def visit(draw: Draw) -> Sequence[Ask]:
        body = {"model": model, "prompt": draw.text(prompt_tokens), "max_tokens": max_tokens, "ignore_eos": True}
        return [Ask("/v1/completions", body)]

    return visit


def writers(model: str, prompt_tokens: int, max_tokens: int) -> Visit:
    """Short questions with long answers, whose KV cache grows while they are made. Source: seed 1, section 2."""
    return lambda draw: [chat(model, draw.text(prompt_tokens), max_tokens, ignore_eos=True)]


def mixed_sizes(model: str, short_tokens: int, long_tokens: int, long_share: float, max_tokens: int) -> Visit:
    """One client's short questions and long documents in one stream of requests. Source: seed 1, section 5."""

    def visit(draw: Draw) -> Sequence[Ask]:
        tokens = long_tokens if draw.rng.random() < long_share else short_tokens
        return [chat(model, draw.text(tokens), max_tokens)]

    return visit


def leaving(model: str, prompt_tokens: int, max_tokens: int, after_seconds: float) -> Visit:
    """Users that close the page before the answer is there. Source: seed 1, section 11."""

    def visit(draw: Draw) -> Sequence[Ask]:
        asked = chat(model, draw.text(prompt_tokens), max_tokens, ignore_eos=True)
        return [Ask(asked.path, asked.body, asked.headers, after_seconds)]

    return visit


def same_questions(model: str, questions: int, prompt_tokens: int, max_tokens: int) -> Visit:
    """A few questions that everybody asks. Source: seed 1, section 12."""

    def visit(draw: Draw) -> Sequence[Ask]:
        text = draw.words.text(draw.words.draw(random.Random(draw.rng.randrange(questions)), prompt_tokens))
        return [chat(model, text, max_tokens)]

    return visit


def variable_head(model: str, shared_tokens: int, max_tokens: int) -> Visit:
    """A long instruction that all share, behind a name and a date that nobody does. Source: seed 1, section 4."""

    def visit(draw: Draw) -> Sequence[Ask]:
        shared = draw.words.text(draw.words.draw(random.Random(0), shared_tokens))
        head = f"User {draw.rng.getrandbits(64):016x} at {draw.rng.getrandbits(64):016x}, session {draw.number}."
        body = [{"role": "system", "content": f"{head} {shared}"}, {"role": "user", "content": draw.text(30)}]
        asked = chat(model, "", max_tokens)
        return [Ask(asked.path, {**asked.body, "messages": body})]

    return visit


def forms(model: str, max_tokens: int) -> Visit:
    """Answers that must obey a schema, another one each time. Source: seed 1, section 17."""

    def visit(draw: Draw) -> Sequence[Ask]:
        fields = {f"field_{draw.rng.getrandbits(40):x}": {"type": "integer"} for _ in range(3)}
        schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": f"form-{draw.number}", "schema": schema}}
        return [chat(model, draw.text(60), max_tokens, response_format=form)]

    return visit


def agents(model: str, calls: Sequence[int], max_tokens: int) -> Visit:
    """Agents that call the model some times, each time with what they have found so far. Source: seed 1, section 13."""

    def visit(draw: Draw) -> Sequence[Ask]:
        session = {"x-session-id": f"s-{draw.rng.getrandbits(64):016x}", "x-agent-depth": "0"}
        messages: list[dict[str, Any]] = [{"role": "user", "content": draw.text(80)}]
        asks = []
        for _ in range(draw.rng.choice(calls)):
            asked = chat(model, "", max_tokens)
            asks.append(Ask(asked.path, {**asked.body, "messages": list(messages)}, session))
            messages.append({"role": "user", "content": draw.text(40)})
        return asks

    return visit


def runaway(model: str, calls: int, max_tokens: int) -> Visit:
    """An agent that calls the same tool with the same arguments again and again. Source: seed 1, section 14."""

    def visit(draw: Draw) -> Sequence[Ask]:
        session = {"x-session-id": f"loop-{draw.rng.getrandbits(64):016x}", "x-agent-depth": "1"}
        turn = [
            {"role": "assistant", "content": None, "tool_calls": [_TOOL]},
            {"role": "tool", "tool_call_id": "call-1", "content": "error: malformed answer"},
        ]
        question = {"role": "user", "content": draw.text(60)}
        asked = chat(model, "", max_tokens)
        # What a context holds: the turns before are forgotten.
        return [
            Ask(asked.path, {**asked.body, "messages": [question, *turn * min(number + 1, 6)]}, session)
            for number in range(calls)
        ]

    return visit


def retrieval(model: str, embedder: str, max_tokens: int, calls: int = 1) -> Visit:
    """A question with its search around it: rewritten, embedded, ranked, answered in `calls` steps. Section 13."""

    def visit(draw: Draw) -> Sequence[Ask]:
        session = {"x-session-id": f"rag-{draw.rng.getrandbits(64):016x}"}
        question = draw.text(30)
        found = [draw.text(60) for _ in range(4)]
        asks = [
            Ask("/v1/embeddings", {"model": embedder, "input": question}, session),
            Ask("/v1/rerank", {"model": embedder, "query": question, "documents": found}, session),
        ]
        for step in range(calls):
            asked = chat(model, f"{step} {question} {' '.join(found)}", max_tokens)
            asks.append(Ask(asked.path, asked.body, session))
        return asks

    return visit


def batch_lines(model: str, prompts: LogNormal, max_tokens: int) -> Visit:
    """The night's work, which nobody waits for: whole answers in a class of its own."""

    def visit(draw: Draw) -> Sequence[Ask]:
        body = {"model": model, "prompt": draw.text(prompts.draw(draw.rng)), "max_tokens": max_tokens}
        return [Ask("/v1/completions", body)]

    return visit
