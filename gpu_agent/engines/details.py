"""What changes with an engine's start alone, read once after each and every hour, beside its looks.

None of it holds up a look: pages have the deadline of a look, files are read in threads that may hang.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from gpu_agent.engines import arguments
from gpu_agent.engines.look import Look
from gpu_agent.engines.memory_exit import MemoryExit
from gpu_agent.engines.model_digests import model_digests, of_start
from gpu_agent.engines.model_files import ModelFiles, TooManyFiles, model_files
from gpu_agent.engines.pages import EnginePages, PageUnavailable
from gpu_agent.engines.samples import engine_labels
from gpu_agent.engines.start_phases import SGLANG_METRICS, StartLog, of_sglang, read_log
from gpu_agent.engines.watch import same_engine
from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.policy import EnginePolicy, NodePolicy
from gpu_agent.samples import Sample
from wire.engine_arguments import differing
from wire.engine_pages.names import PREFIX
from wire.engine_pages.scan import NotMetrics, Scan
from wire.files import read_bounded
from wire.messages import UNREADABLE, EngineReport
from wire.snapshot import NodeEngine

log = logging.getLogger("headworks.agent.engines")

_AGAIN_SECONDS = 3600
_LOG_SECONDS, _FILES_SECONDS = 10.0, 60.0
_VERSION_CHARACTERS = 200


@dataclass(frozen=True)
class _AboutPage:
    """A page of JSON about an engine. `root`: the part with its settings by section.

    `version`: where that stands, of a kind whose looks do not read it.
    """

    paths: tuple[str, ...]
    version: str = ""
    root: str = ""


# Newest path first. vLLM's is there in development mode alone. Source: each engine's HTTP server.
_ABOUT = {
    "vllm": _AboutPage(("/server_info?config_format=json",), root="vllm_config"),
    "sglang": _AboutPage(("/server_info", "/get_server_info"), "version"),
    "tgi": _AboutPage(("/info",)),
    "llamacpp": _AboutPage(("/props",), "build_info"),
}


_CONFIG_BYTES = 64 << 10


class _Listed(msgspec.Struct):
    id: str = ""
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Listed] = []


# Kinds whose list of models says how long a sequence may be.
_LENGTH_KINDS = frozenset({"vllm", "sglang"})


@dataclass
class _Known:
    """Of one engine. `due_seconds`: when to read again. `words`: of its process. A thread may outlive its reading."""

    engine: NodeEngine
    due_seconds: float = 0
    restarts: int = 0
    words: list[str] | None = None
    task: asyncio.Task[None] | None = None
    version: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    start_phases_ms: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    # How the run before ended for want of GPU memory; whether its log tells of that at all.
    memory_exit: MemoryExit | None = None
    knows_exit: bool = False
    max_length_tokens: int | None = None
    files: ModelFiles | None = None
    digests: dict[str, str] = field(default_factory=dict)
    started_ms: int | None = None
    config_thread: Apart[dict[str, str]] = field(default_factory=lambda: Apart("engine-config"))
    log_thread: Apart[StartLog] = field(default_factory=lambda: Apart("engine-log"))
    files_thread: Apart[tuple[ModelFiles, dict[str, str]]] = field(default_factory=lambda: Apart("model-files"))


class EngineDetails:
    """`command_line(engine)`: the words of its listening process, None where they are not known."""

    def __init__(
        self,
        pages: EnginePages,
        policy: NodePolicy,
        command_line: Callable[[str], list[str] | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages, self._policy, self._command_line, self._clock = pages, policy, command_line, clock
        self._known: dict[str, _Known] = {}

    def looked(self, name: str, engine: NodeEngine, look: Look) -> None:
        """Begin to read what a look at this engine makes due."""
        if not same_engine(self._known[name].engine if name in self._known else None, engine):
            self._drop(name)
            self._known[name] = _Known(engine)
        known = self._known[name]
        words = self._command_line(name)
        # Its process may be found later than it answers, or than it was started again.
        if look.report.state != "up" or look.restarts != known.restarts or words not in (None, known.words):
            known.restarts, known.due_seconds = look.restarts, 0
        if look.report.state == "up" and self.reads_none(name) and self._clock() >= known.due_seconds:
            known.due_seconds, known.words = self._clock() + _AGAIN_SECONDS, words
            known.started_ms = None if look.report.started_at_ms is UNSET else look.report.started_at_ms
            known.task = asyncio.create_task(self._read(name, known))

    def reads_none(self, name: str) -> bool:
        """Whether no reading of this engine is under way."""
        return name not in self._known or self._known[name].task is None

    def keep_only(self, names: Collection[str]) -> None:
        for gone in self._known.keys() - names:
            self._drop(gone)

    def _drop(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None and known.task is not None:
            known.task.cancel()

    def stop(self) -> None:
        self.keep_only(())

    def add_to(self, report: EngineReport) -> EngineReport:
        """The report with what is known of the engine."""
        known = self._known.get(report.name)
        if known is None:
            return report
        return msgspec.structs.replace(
            report,
            version=known.version or UNSET if report.version is UNSET else report.version,
            arguments=known.arguments,
            start_phases_ms=known.start_phases_ms,
            model_path=self._policy.engine(report.name).model_path or UNSET,
            model_bytes=known.files.size_bytes if known.files else UNSET,
            versions=known.versions,
            digests=of_start(known.digests, known.arguments),
            max_length_tokens=UNSET if known.max_length_tokens is None else known.max_length_tokens,
        )

    def samples(self, name: str, engine: NodeEngine) -> list[Sample]:
        known = self._known.get(name)
        if known is None:
            return []
        labels = engine_labels(name, engine)
        phases = [
            Sample(f"{PREFIX}start_phase_seconds", {**labels, "phase": phase}, took_ms / 1000, 0)
            for phase, took_ms in known.start_phases_ms.items()
        ]
        if known.knows_exit:
            phases += _of_memory_exit(known.memory_exit, labels)
        if engine.arguments and known.arguments:
            count = len(differing(engine.arguments, known.arguments))
            phases.append(Sample(f"{PREFIX}arguments_differing", labels, float(count), 0))
        if known.files is None:
            return phases
        where = {"filesystem": known.files.filesystem, "place": known.files.place}
        return [*phases, Sample(f"{PREFIX}model_bytes", {**labels, **where}, float(known.files.size_bytes), 0)]

    async def _read(self, name: str, known: _Known) -> None:
        policy = self._policy.engine(name)
        try:
            await asyncio.gather(
                self._about(known, policy),
                self._max_length(known),
                self._start_phases(known, policy),
                self._model_files(name, known, policy),
            )
        except Exception:
            log.exception("what engine %s was started with cannot be read", name)
        finally:
            known.task = None

    async def _about(self, known: _Known, policy: EnginePolicy) -> None:
        """Its arguments: of its process where that is known, over those of its file, over what its page says."""
        page = _ABOUT.get(known.engine.kind)
        words = known.words
        of_process = arguments.of_command_line(words) if words else {}
        # vLLM's page gathers facts of the whole machine for seconds, and says no more than this.
        document = {} if page is None or (known.engine.kind == "vllm" and words) else await self._document(known, page)
        of_page = arguments.of_document(document)
        if page is not None and page.root and isinstance(root := document.get(page.root), dict):
            of_page = arguments.of_document(root, sections=root)
        known.version = " ".join(str(document.get(page.version, "")).split())[:_VERSION_CHARACTERS] if page else ""
        of_file = await self._of_file(known, policy)
        known.arguments = arguments.merged(of_process, arguments.merged(of_file, of_page))

    async def _of_file(self, known: _Known, policy: EnginePolicy) -> dict[str, str]:
        """What its configuration file says, unless that was written since the engine was started."""
        if policy.config_file is None or known.engine.kind != "vllm":
            return {}
        try:
            read = partial(_config_file, Path(policy.config_file), known.started_ms)
            return await known.config_thread.run(read, _LOG_SECONDS)
        except (OSError, ValueError, NoAnswer) as error:
            log.debug("the configuration file %s cannot be read: %s", policy.config_file, error)
            return {}

    async def _document(self, known: _Known, page: _AboutPage) -> dict[str, Any]:
        for path in page.paths:
            try:
                body = await self._pages.document(known.engine.url + path, self._pages.deadline())
                return msgspec.json.decode(body, type=dict[str, Any])
            except (PageUnavailable, *UNREADABLE) as error:
                log.debug("%s%s: %s", known.engine.url, path, error)
        return {}

    async def _max_length(self, known: _Known) -> None:
        """Of the model that it is asked for; an adapter beside it has none of its own."""
        if known.engine.kind not in _LENGTH_KINDS:
            return
        try:
            body = await self._pages.document(f"{known.engine.url}/v1/models", self._pages.deadline())
            listed = msgspec.json.decode(body, type=_Models).data
        except (PageUnavailable, *UNREADABLE) as error:
            log.debug("%s/v1/models: %s", known.engine.url, error)
            listed = []
        lengths = {model.id: model.max_model_len for model in listed if (model.max_model_len or 0) > 0}
        known.max_length_tokens = lengths.get(known.engine.served_model or known.engine.model)

    async def _start_phases(self, known: _Known, policy: EnginePolicy) -> None:
        if policy.log_file is not None and known.engine.kind in ("vllm", "triton"):
            read = partial(read_log, Path(policy.log_file))
            try:
                start = await known.log_thread.run(read, _LOG_SECONDS)
                known.start_phases_ms, known.versions = start.phases_ms, start.versions
                known.memory_exit, known.knows_exit = start.memory_exit, start.began
            except (OSError, NoAnswer) as error:
                known.start_phases_ms, known.versions, known.knows_exit = {}, {}, False
                log.warning("the start of an engine cannot be read in its log %s: %s", policy.log_file, error)
        elif known.engine.kind == "sglang":
            known.start_phases_ms = await self._sglang_phases(known.engine, policy)

    async def _sglang_phases(self, engine: NodeEngine, policy: EnginePolicy) -> dict[str, int]:
        try:
            async with self._pages.open(policy.metrics_url or f"{engine.url}/metrics", self._pages.deadline()) as page:
                scan = Scan(engine.kind, page.media_type, tuple(SGLANG_METRICS))
                async for chunk in page.chunks():
                    scan.feed(chunk)
        except (PageUnavailable, NotMetrics) as error:
            log.debug("%s: %s", engine.url, error)
            return {}
        return of_sglang(scan.own_lines)

    async def _model_files(self, name: str, known: _Known, policy: EnginePolicy) -> None:
        if policy.model_path is None:
            return
        try:
            read = partial(_files_and_digests, Path(policy.model_path))
            known.files, known.digests = await known.files_thread.run(read, _FILES_SECONDS)
        except (OSError, NoAnswer, TooManyFiles) as error:
            known.files, known.digests = None, {}
            log.warning("the size of engine %s's model files is not known: %s", name, error)


def _of_memory_exit(found: MemoryExit | None, labels: dict[str, str]) -> list[Sample]:
    parts = {} if found is None else found.parts
    return [
        Sample(f"{PREFIX}out_of_memory_exit", labels, float(found is not None), 0),
        *(
            Sample(f"{PREFIX}out_of_memory_bytes", {**labels, "part": part}, float(size), 0)
            for part, size in parts.items()
        ),
    ]


def _files_and_digests(path: Path) -> tuple[ModelFiles, dict[str, str]]:
    return model_files(path), model_digests(path)


def _config_file(file: Path, started_ms: int | None) -> dict[str, str]:
    """Raises: OSError, ValueError."""
    if started_ms is not None and file.stat().st_mtime > started_ms / 1000:
        return {}
    return arguments.of_config_file(read_bounded(file, _CONFIG_BYTES).decode())
