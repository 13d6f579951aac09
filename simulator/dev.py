"""What vLLM lets be changed while it runs: pause, sleep and the prefix cache in dev mode, LoRA adapters at run time.

As vLLM does: a sleeping engine says that it is paused, and a paused one that it sleeps; only its metrics tell which.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec

from simulator.generation import Generator
from simulator.http_server import Exchange
from simulator.metrics import EngineMetrics, SleepState
from simulator.requests import ApiError, LoadAdapter, UnloadAdapter, bad_request, decode

Route = tuple[bytes, Callable[[Exchange], None]]
PAUSE_MODES = ("abort", "wait", "keep")
# Level 0 pauses, and leaves the memory as it is.
_SLEEP_STATES: dict[str, SleepState] = {"0": "awake", "1": "weights_offloaded", "2": "discard_all"}


class Running:
    """What the dev endpoints need of the engine around them. `idle` is set while nothing is being answered."""

    def __init__(self, idle: asyncio.Event, freeze: Callable[[bool], None], abort_all: Callable[[], None]) -> None:
        self.idle, self.freeze, self.abort_all = idle, freeze, abort_all


class DevEndpoints:
    """vLLM's endpoints behind `VLLM_SERVER_DEV_MODE=1`."""

    def __init__(self, running: Running, metrics: EngineMetrics, server_info: dict[str, Any]) -> None:
        self._running, self._metrics, self._server_info = running, metrics, server_info
        self._paused = False
        self._held: list[Callable[[], None]] = []
        self._waiting: set[asyncio.Task[None]] = set()
        self.routes: dict[bytes, Route] = {
            b"/pause": (b"POST", self._pause),
            b"/resume": (b"POST", self._resume),
            b"/is_paused": (b"GET", lambda exchange: _answer(exchange, {"is_paused": self._paused})),
            b"/sleep": (b"POST", self._sleep),
            b"/wake_up": (b"POST", self._wake_up),
            b"/is_sleeping": (b"GET", lambda exchange: _answer(exchange, {"is_sleeping": self._paused})),
            # Prefix caching is off in the simulated engine: there is nothing to forget.
            b"/reset_prefix_cache": (b"POST", lambda exchange: _answer(exchange, {"success": True})),
            b"/server_info": (b"GET", self._show_server_info),
        }

    def hold(self, start: Callable[[], None]) -> bool:
        """Whether a new request must wait; `start` is then called when the engine goes on."""
        if self._paused:
            self._held.append(start)
        return self._paused

    def _pause(self, exchange: Exchange) -> None:
        mode = _option(exchange, "mode", PAUSE_MODES, "abort")
        self._stop(mode, lambda: _answer(exchange, {"status": "paused"}))

    def _resume(self, exchange: Exchange) -> None:
        self._go_on()
        _answer(exchange, {"status": "resumed"})

    def _sleep(self, exchange: Exchange) -> None:
        level = _option(exchange, "level", tuple(_SLEEP_STATES), "1")
        mode = _option(exchange, "mode", PAUSE_MODES, "abort")

        def asleep() -> None:
            self._metrics.sleep_state = _SLEEP_STATES[level]
            _answer(exchange, {"status": "sleeping", "level": int(level)})

        self._stop(mode, asleep)

    def _wake_up(self, exchange: Exchange) -> None:
        self._metrics.sleep_state = "awake"
        self._go_on()
        _answer(exchange, {"status": "awake", "tags": None})

    def _stop(self, mode: str, stopped: Callable[[], None]) -> None:
        """Take nothing new; end what runs, wait for its end, or keep it where it stands. `stopped` is called then."""
        self._paused = True
        if mode == "wait":
            task = asyncio.create_task(self._when_idle(stopped))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            return
        self._running.freeze(True)
        if mode == "abort":
            self._running.abort_all()
        stopped()

    async def _when_idle(self, stopped: Callable[[], None]) -> None:
        await self._running.idle.wait()
        stopped()

    def _go_on(self) -> None:
        self._paused = False
        self._running.freeze(False)
        held, self._held = self._held, []
        for start in held:
            start()

    def _show_server_info(self, exchange: Exchange) -> None:
        config: Any = self._server_info
        if _option(exchange, "config_format", ("text", "json"), "text") == "text":
            config = ", ".join(f"{name}={value!r}" for name, value in self._server_info.items())
        _answer(exchange, {"vllm_config": config, "vllm_env": {}, "system_env": {}})


class Adapters:
    """LoRA adapters by name. Their weights are not simulated: they answer as the model they belong to."""

    def __init__(self, generator: Generator, forget_answers: Callable[[], None]) -> None:
        self._generator, self._forget_answers = generator, forget_answers
        self.paths: dict[str, str] = {}
        self.routes: dict[bytes, Route] = {
            b"/v1/load_lora_adapter": (b"POST", self._load),
            b"/v1/unload_lora_adapter": (b"POST", self._unload),
        }

    def _load(self, exchange: Exchange) -> None:
        wanted: LoadAdapter = decode(exchange.request.body, LoadAdapter)
        if wanted.lora_name in self._generator.served_names:
            raise bad_request(f"The lora adapter '{wanted.lora_name}' conflicts with a served base model.")
        if wanted.lora_name in self.paths:
            raise bad_request(f"The lora adapter '{wanted.lora_name}' has already been loaded.")
        self.paths[wanted.lora_name] = wanted.lora_path
        self._generator.add_name(wanted.lora_name)
        exchange.answer(200, f"Success: LoRA adapter '{wanted.lora_name}' added successfully.".encode(), b"text/plain")

    def _unload(self, exchange: Exchange) -> None:
        wanted: UnloadAdapter = decode(exchange.request.body, UnloadAdapter)
        if self.paths.pop(wanted.lora_name, None) is None:
            raise ApiError(404, "NotFoundError", f"The lora adapter '{wanted.lora_name}' cannot be found.")
        self._generator.remove_name(wanted.lora_name)
        self._forget_answers()
        message = f"Success: LoRA adapter '{wanted.lora_name}' removed successfully."
        exchange.answer(200, message.encode(), b"text/plain")


def _answer(exchange: Exchange, content: dict[str, Any]) -> None:
    exchange.answer(200, msgspec.json.encode(content))


def _option(exchange: Exchange, name: str, known: tuple[str, ...], default: str) -> str:
    """A parameter of the query. Raises: ApiError."""
    with contextlib.suppress(UnicodeDecodeError):
        given = parse_qs(exchange.request.query.decode()).get(name, [default])[-1]
        if given in known:
            return given
    raise ApiError(422, "BadRequestError", f"{name} must be one of {', '.join(known)}", name)
