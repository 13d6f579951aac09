"""`python -m simulator.engine`: a process that answers as vLLM 0.32 does, driven by a model of its scheduler."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from tokenizers import Tokenizer

from simulator.config_file import insert_config
from simulator.core import EngineCore
from simulator.generation import Generator
from simulator.http_server import Server
from simulator.lengths import LogNormal
from simulator.metrics import EngineMetrics
from simulator.pathologies.conditions import Conditions
from simulator.pathologies.parallel import parallel
from simulator.pathologies.start import run_out_of_memory, start_up
from simulator.scheduler import BLOCK_TOKENS, Limits, Scheduler, StepCost
from simulator.service import VERSION, EngineService
from simulator.tokenizer import train_tokenizer

INSTANT = "instant"
# Half of chat answers are shorter than a few paragraphs and a few are very long.
ANSWER_LENGTHS = LogNormal(median_tokens=150, sigma=1.0)
# What is written has left by then, or its reader does not read.
FLUSH_SECONDS = 1.0
# What launching each kernel by itself costs a step.
EAGER_SECONDS = 0.0015
log = logging.getLogger("simulator.engine")


def _speed(text: str) -> float | None:
    """None is an instant engine."""
    if text == INSTANT:
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.001 <= speed <= 10_000:
        raise argparse.ArgumentTypeError(f"give {INSTANT} or a number from 0.001 to 10000, not {text!r}")
    return speed


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"give a port from 0 to 65535, not {text!r}")
    return int(text)


def _conditions(text: str) -> Conditions:
    try:
        return msgspec.json.decode(text, type=Conditions)
    except msgspec.MsgspecError as error:
        raise argparse.ArgumentTypeError(f"not the conditions of an engine: {error}") from error


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"give a whole number from 1 to 64, not {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="python -m simulator.engine", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_port, default=8000, help="0 lets the system choose; the port is printed")
    parser.add_argument("--model", default="simulated-8b", help="the model's name")
    parser.add_argument("--served-model-name", nargs="+", help="names that clients may use (default: the model's)")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="a tokenizer.json (default: the built-in one)")
    parser.add_argument("--kv-capacity-tokens", type=int, default=defaults.kv_capacity_tokens)
    parser.add_argument("--max-num-seqs", type=int, default=defaults.max_num_seqs)
    parser.add_argument("--max-num-batched-tokens", type=int, default=defaults.max_num_batched_tokens)
    parser.add_argument("--max-model-len", type=int, default=defaults.max_model_len_tokens)
    parser.add_argument(
        "--speed", type=_speed, default=1.0, help="how many times faster than the modelled GPU, or 'instant' (no model)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides the texts and lengths of all answers")
    parser.add_argument(
        "--shutdown-timeout", type=float, default=0.0, help="seconds that running answers have to end after SIGTERM"
    )
    parser.add_argument(
        "--schema-compile-seconds", type=float, default=0.0, help="what the first request with each schema waits"
    )
    parser.add_argument(
        "--tensor-parallel-size", type=_count, default=1, help="GPUs that share each step's work, by the model"
    )
    parser.add_argument(
        "--interconnect", choices=("nvlink", "pcie"), default="nvlink", help="what these GPUs reach each other by"
    )
    parser.add_argument("--api-server-count", type=_count, default=1, help="processes that hand on what is made")
    parser.add_argument("--enforce-eager", action="store_true", help="no CUDA graphs: slower steps, a shorter start")
    parser.add_argument(
        "--start-seconds", type=float, default=0.0, help="how long it takes to load weights, compile, capture graphs"
    )
    parser.add_argument(
        "--out-of-memory-seconds",
        type=float,
        default=0.0,
        help="so long after its start a fragmented memory ends the process, unless it is eager (default 0: never)",
    )
    parser.add_argument(
        "--conditions",
        type=_conditions,
        default=Conditions(),
        metavar="JSON",
        help="what is wrong with it from its start on, as POST /simulator/conditions takes it",
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file of `option: value` lines; options given here win")
    parser.add_argument(
        "--dev-mode", action="store_true", help="pause, sleep and more over HTTP, as with VLLM_SERVER_DEV_MODE=1"
    )
    parser.add_argument(
        "--runtime-lora", action="store_true", help="adapters over HTTP, as with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
    )
    return parser


def _server_info(options: argparse.Namespace, limits: Limits) -> dict[str, Any]:
    """What vLLM's configuration calls these."""
    return {
        "model_config": {"model": options.model, "max_model_len": limits.max_model_len_tokens},
        "scheduler_config": {
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
        },
        "cache_config": {"block_size": BLOCK_TOKENS, "num_gpu_blocks": limits.capacity_blocks},
    }


def _step_cost(options: argparse.Namespace) -> StepCost:
    cost = parallel(StepCost(), options.tensor_parallel_size, options.interconnect)
    if options.enforce_eager:
        return replace(cost, base_seconds=cost.base_seconds + EAGER_SECONDS)
    return cost


async def serve(options: argparse.Namespace, limits: Limits, generator: Generator) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises: OSError when the address cannot be taken.
    """
    names = generator.served_names
    await start_up(options.start_seconds, VERSION, eager=options.enforce_eager)
    scheduler = Scheduler(limits, _step_cost(options))
    metrics = EngineMetrics(names[0], scheduler)
    core = None if options.speed is None else EngineCore(scheduler, metrics, options.speed)
    server_info = _server_info(options, limits) if options.dev_mode else None
    service = EngineService(
        generator, metrics, limits, core, server_info, options.runtime_lora, options.schema_compile_seconds,
        options.api_server_count,
    )  # fmt: skip
    service.hold(options.conditions)
    server = Server(service)
    port = await server.listen(options.host, options.port)
    log.info("simulated engine for %s on http://%s:%d", names[0], options.host, port)
    if options.out_of_memory_seconds and not options.enforce_eager:
        asyncio.get_running_loop().call_later(options.out_of_memory_seconds, run_out_of_memory)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await service.stop(options.shutdown_timeout)
    await server.close(FLUSH_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    try:
        options = parser.parse_args(insert_config(sys.argv[1:] if arguments is None else arguments))
    except (OSError, ValueError) as error:
        parser.error(f"--config: {error}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        limits = Limits(
            kv_capacity_tokens=options.kv_capacity_tokens,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            max_model_len_tokens=options.max_model_len,
        )
        tokenizer = Tokenizer.from_file(str(options.tokenizer)) if options.tokenizer else train_tokenizer()
        names = options.served_model_name or [options.model]
        generator = Generator(tokenizer, names, limits.max_model_len_tokens, ANSWER_LENGTHS, options.seed)
    except ValueError as error:
        parser.error(str(error))
    except Exception as error:  # tokenizers raises plain Exception for a file it cannot read
        parser.error(f"--tokenizer {options.tokenizer}: {error}")
    try:
        uvloop.run(serve(options, limits, generator))
    except OSError as error:
        log.error("cannot listen on %s:%d: %s", options.host, options.port, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
