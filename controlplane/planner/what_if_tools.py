"""Benchmarks that load a real engine: vLLM's own and GuideLLM. Found, called, and their results read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class ToolTrouble(RuntimeError):
    """A benchmark is missing, failed, or wrote what cannot be read; the message says what would help."""


class Load(NamedTuple):
    """What a benchmark sends: `requests` at `rate_per_second`, with prompts and answers around these lengths.

    `spread`: of a length around its mean, as a share; lengths are evenly spread within it.
    """

    url: str
    model: str
    tokenizer: str
    rate_per_second: float
    requests: int
    prompt_tokens: int
    output_tokens: int
    spread: float
    seed: int


class Request(NamedTuple):
    """One request as the benchmark saw it; times in seconds. `tpot` is None for an answer of one token."""

    ok: bool
    started_at: float
    ttft: float
    tpot: float | None
    e2e: float
    prompt_tokens: int
    output_tokens: int


class Tool(NamedTuple):
    """`arguments`: of the program, given a load and the file that it shall write. `read` is of what that then holds."""

    name: str
    program: str
    arguments: Callable[[Load, Path], list[str]]
    read: Callable[[Any], list[Request]]
    get: str


def found(tool: Tool, path: str | None) -> str:
    """The program. Raises ToolTrouble saying how to get it."""
    if path is not None:
        if (program := shutil.which(path)) is None:
            raise ToolTrouble(f"--tool-path {path}: there is no such program")
        return program
    if (program := shutil.which(tool.program)) is None:
        raise ToolTrouble(
            f"{tool.name} is not installed: no {tool.program!r} on PATH. {tool.get}, or name it with --tool-path"
        )
    return program


def results(tool: Tool, file: Path) -> list[Request]:
    """What the benchmark measured. Raises ToolTrouble where the file does not hold it."""
    try:
        requests = tool.read(json.loads(file.read_bytes()))
    except OSError as error:
        raise ToolTrouble(f"{tool.name} wrote no results: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        message = f"{tool.name} wrote results that are not understood ({error!r}); is it another version?"
        raise ToolTrouble(message) from error
    if not any(request.ok for request in requests):
        raise ToolTrouble(f"of {len(requests)} requests none was answered; is it the right --model and --url?")
    return requests


def _vllm_arguments(load: Load, file: Path) -> list[str]:
    """Source: vllm bench serve --help=all, 0.32."""
    return [
        "bench", "serve", "--backend", "openai", "--base-url", load.url,
        "--model", load.model, "--tokenizer", load.tokenizer,
        "--dataset-name", "random", "--random-input-len", str(load.prompt_tokens),
        "--random-output-len", str(load.output_tokens), "--random-range-ratio", str(load.spread),
        "--num-prompts", str(load.requests), "--request-rate", str(load.rate_per_second),
        "--num-warmups", "3", "--ignore-eos", "--seed", str(load.seed), "--disable-tqdm",
        "--save-result", "--save-detailed", "--result-dir", str(file.parent), "--result-filename", file.name,
    ]  # fmt: skip


def _vllm_read(document: Any) -> list[Request]:
    columns = ("start_times", "ttfts", "latencies", "input_lens", "output_lens", "errors")
    return [
        Request(
            ok=not error,
            started_at=started,
            ttft=ttft,
            tpot=(latency - ttft) / (output - 1) if output > 1 else None,
            e2e=latency,
            prompt_tokens=prompt,
            output_tokens=output,
        )
        for started, ttft, latency, prompt, output, error in zip(*(document[name] for name in columns), strict=True)
    ]


def _guidellm_arguments(load: Load, file: Path) -> list[str]:
    """Source: guidellm run --help, 0.8."""
    data = {
        "kind": "synthetic_text",
        "prompt_tokens": load.prompt_tokens,
        "prompt_tokens_min": max(1, int(load.prompt_tokens * (1 - load.spread))),
        "prompt_tokens_max": max(1, int(load.prompt_tokens * (1 + load.spread))),
        "output_tokens": load.output_tokens,
        "output_tokens_min": max(1, int(load.output_tokens * (1 - load.spread))),
        "output_tokens_max": max(1, int(load.output_tokens * (1 + load.spread))),
    }
    return [
        "run", "--disable-console",
        "--backend", json.dumps({"kind": "openai_http", "target": load.url, "model": load.model}),
        "--tokenizer", json.dumps({"kind": "huggingface_auto", "model": load.tokenizer}),
        "--profile", json.dumps({"kind": "poisson", "rate": load.rate_per_second}),
        "--constraint", json.dumps({"kind": "max_requests", "count": load.requests}),
        "--data", json.dumps(data), "--output", json.dumps({"kind": "json", "path": str(file)}),
    ]  # fmt: skip


def _guidellm_read(document: Any) -> list[Request]:
    (benchmark,) = document["benchmarks"]
    requests = benchmark["requests"]
    good = [
        Request(
            ok=True,
            started_at=each["request_start_time"],
            ttft=each["time_to_first_token_ms"] / 1000,
            # GuideLLM's own time per output token counts the first one in; this is the time between those after it.
            tpot=None if each["output_tokens"] < 2 else each["inter_token_latency_ms"] / 1000,
            e2e=each["request_latency"],
            prompt_tokens=each["prompt_tokens"],
            output_tokens=each["output_tokens"],
        )
        for each in requests["successful"]
    ]
    bad = [Request(False, each["request_start_time"], 0.0, None, 0.0, 0, 0) for each in requests["errored"]]
    return good + bad


TOOLS = {
    tool.program: tool
    for tool in (
        Tool(
            "vLLM's benchmark", "vllm", _vllm_arguments, _vllm_read,
            "It comes with vLLM: pip install 'vllm[bench]', on the machine that sends the load",
        ),
        Tool(
            "GuideLLM", "guidellm", _guidellm_arguments, _guidellm_read,
            "pip install guidellm, version 0.8, on the machine that sends the load",
        ),
    )
}  # fmt: skip
