"""Clients of the demo's gateway: one small request, and a stream that is held open."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from controlplane.demo.fleet import Fleet
from controlplane.demo.plan import LONG_PROMPT_TOKENS, MODEL
from controlplane.demo_check.steps import expect

_QUESTION = "What limits the fleet now?"
# Each word is a token or more.
_LONG_QUESTION = " ".join(["queue"] * 2 * LONG_PROMPT_TOKENS)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def code(self) -> str | None:
        """The refusal's named reason, where it is one."""
        return self.body.get("error", {}).get("code") if isinstance(self.body, dict) else None


def chat(fleet: Fleet, tenant: str, *, long: bool = False, timeout_seconds: float = 30) -> Answer:
    """One request for a small answer with the tenant's key; `long`: one for the pool of long prompts."""
    request = _request(fleet, tenant, {"max_tokens": 16}, _LONG_QUESTION if long else _QUESTION)
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:  # noqa: S310
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        text = error.read()
        return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, json.loads(text) if text else None)


def served(fleet: Fleet, tenant: str, *, long: bool = False) -> str:
    answer = chat(fleet, tenant, long=long)
    expect(answer.status == 200, f"{tenant} got {answer.status} {answer.body}")
    return f"{tenant} 200"


class Stream:
    """One streamed answer of `tokens` tokens, read by a thread of its own until it ends; `long`: as with `chat`."""

    def __init__(self, fleet: Fleet, tenant: str, tokens: int, *, long: bool = False) -> None:
        options = {"max_tokens": tokens, "ignore_eos": True, "stream": True}
        self._request = _request(fleet, tenant, options, _LONG_QUESTION if long else _QUESTION)
        self.begun = threading.Event()
        # "whole" once its last event came; else what went wrong.
        self.outcome = "open"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        last = b""
        try:
            with urllib.request.urlopen(self._request, timeout=60) as answer:  # noqa: S310
                for line in answer:
                    self.begun.set()
                    last = line.strip() or last
        except OSError as error:
            self.outcome = f"broken: {error}"
        else:
            self.outcome = "whole" if last == b"data: [DONE]" else f"cut after {last[:200]!r}"

    def wait(self, timeout_seconds: float) -> str:
        self._thread.join(timeout_seconds)
        return self.outcome


def _request(fleet: Fleet, tenant: str, options: dict[str, Any], question: str) -> urllib.request.Request:
    body = {"model": MODEL, "messages": [{"role": "user", "content": question}], **options}
    return urllib.request.Request(  # noqa: S310
        f"{fleet.gateway_address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {fleet.keys[tenant]}", "Content-Type": "application/json"},
    )
