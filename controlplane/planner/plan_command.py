"""`headworks plan`: a capacity plan from a config.json, from the shell. Needs no database, and calls nothing."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, NoReturn

from wire.canonical import Document

_STANDARD_INPUT = "-"
_GIB = 2**30
# 1 says that the plan does not fit, 2 that it was asked wrongly.
_DOES_NOT_FIT, _WRONG = 1, 2


def add_to(commands: Any) -> None:
    """Add the command to those of the parser."""
    text = (
        "Plan a model's capacity from its config.json: weights, KV cache, settings to start with, waits. Exit status: "
        "0 it fits, 1 it does not, 2 it was asked wrongly."
    )
    parser = commands.add_parser("plan", help=text, description=text)
    parser.set_defaults(run=_run)
    parser.add_argument("file", nargs="?", help="a Hugging Face config.json; -: standard input")
    parser.add_argument("--model", metavar="NAME", help="instead of a file: one of the models that --list shows")
    parser.add_argument("--gpu", metavar="NAME", help="one of the GPUs that --list shows")
    parser.add_argument(
        "--gpu-memory-gib", type=float, metavar="GIB", help="instead of --gpu: the memory of another one"
    )
    parser.add_argument("--per-node", type=int, default=1, help="GPUs of a machine (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=1, help="machines (default: %(default)s)")
    parser.add_argument(
        "--link", choices=["nvlink", "pcie"], help="between GPUs of a machine (default: the GPU's usual)"
    )
    parser.add_argument("--weights", choices=["bf16", "fp8", "int4", "mxfp4"], help="default: as the file stores them")
    parser.add_argument("--kv-cache", choices=["bf16", "fp8"], default="bf16", help="default: %(default)s")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="--max-model-len (default: the model's own)")
    parser.add_argument("--utilisation", type=float, default=0.92, help="of a GPU's memory (default: %(default)s)")
    parser.add_argument("--tensor-parallel", type=int, help="default: what the decision tree leads to")
    parser.add_argument("--pipeline-parallel", type=int, help="default: what the decision tree leads to")
    parser.add_argument(
        "--prompt", default="mean=1000", metavar="LENGTHS",
        help="tokens, such as mean=1500 or p50=1000,p95=6000 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--output", default="mean=300", metavar="LENGTHS", help="as --prompt (default: %(default)s)")
    parser.add_argument("--prefill-rate", type=float, help="tokens a second that one GPU reads, measured")
    parser.add_argument("--decode-rate", type=float, help="tokens a second that one GPU writes, measured")
    parser.add_argument("--tpot-ms", type=int, help="a step shall last no longer")
    parser.add_argument("--wait-ms", type=int, default=5000, help="that a client will wait (default: %(default)s)")
    parser.add_argument("--fan-out", metavar="FILE", help="instead of a plan: the body of POST /api/v1/plans/fan-out")
    parser.add_argument("--list", action="store_true", help="print the GPUs and models that are known by name")
    parser.add_argument("--json", action="store_true", help="print what POST /api/v1/plans answers")


def _run(arguments: argparse.Namespace) -> int:
    from controlplane.core.errors import Refused
    from policy.planning.config_json import BadConfig

    try:
        if arguments.list:
            return _list()
        return _fan_out(arguments) if arguments.fan_out else _plan(arguments)
    except (Refused, BadConfig) as error:
        for problem in error.problems:
            print(f"headworks: {problem.path}: {problem.message}", file=sys.stderr)
        return _WRONG


def _list() -> int:
    from controlplane.planner.plan_text import list_text

    print(list_text())
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from controlplane.core import fields as f
    from controlplane.planner.plan_asked import planned, shape_asked, typed_lengths, typed_machines, typed_rates
    from controlplane.planner.plan_described import described
    from controlplane.planner.plan_fields import PlanFields
    from controlplane.planner.plan_text import plan_text

    fields = f.read(PlanFields, _asked(arguments))
    rates = None if fields.rates is None else typed_rates(fields.rates)
    shape, machines, lengths = shape_asked(fields.model), typed_machines(fields.gpus), typed_lengths(fields.lengths)
    ask, made = planned(fields, shape, machines, lengths, rates, "estimated" if rates is None else "typed")
    answer = described(ask, made)
    print(json.dumps(answer, indent=2) if arguments.json else plan_text(answer))
    return 0 if answer["fits"] else _DOES_NOT_FIT


def _fan_out(arguments: argparse.Namespace) -> int:
    from controlplane.core import fields as f
    from controlplane.planner.plan_asked import fanned_out, typed_rates
    from controlplane.planner.plan_described import fan_out_described
    from controlplane.planner.plan_fields import FanOutFields
    from controlplane.planner.plan_text import fan_out_text
    from wire.problems import Problem, pointer

    fields = f.read(FanOutFields, _document_in(arguments.fan_out))
    rates = {model: typed_rates(each) for model, each in fields.rates.items()}
    without = [model for model, each in rates.items() if each is None]
    f.refuse_if([Problem(pointer("/rates", model), "no_fleet", "without a fleet type its rates") for model in without])
    answer = fan_out_described(fanned_out(fields, {model: each for model, each in rates.items() if each is not None}))
    print(json.dumps(answer, indent=2) if arguments.json else fan_out_text(answer))
    return 0


def _asked(arguments: argparse.Namespace) -> Document:
    """The arguments in the form of the REST call's body."""
    if (arguments.file is None) == (arguments.model is None):
        _end("give either a config.json (- for standard input) or --model; --list shows what is known by name")
    model = {"known": arguments.model} if arguments.file is None else {"config": _document_in(arguments.file)}
    gpus: Document = {"per_node": arguments.per_node, "nodes": arguments.nodes, "link": arguments.link}
    if (arguments.gpu is None) == (arguments.gpu_memory_gib is None):
        _end("give either --gpu or --gpu-memory-gib; --list shows what is known by name")
    if arguments.gpu is not None:
        gpus["known"] = arguments.gpu
    else:
        gpus["memory_bytes"] = _whole(arguments.gpu_memory_gib * _GIB, "--gpu-memory-gib")
    asked: Document = {
        "model": model,
        "gpus": gpus,
        "lengths": {"prompt": _lengths(arguments.prompt), "output": _lengths(arguments.output)},
        "weights": arguments.weights,
        "kv_cache_dtype": arguments.kv_cache,
        "context_tokens": arguments.context,
        "utilisation_permille": _whole(arguments.utilisation * 1000, "--utilisation"),
        "tensor_parallel": arguments.tensor_parallel,
        "pipeline_parallel": arguments.pipeline_parallel,
        "acceptable_wait_ms": arguments.wait_ms,
        "tpot_slo_ms": arguments.tpot_ms,
    }
    if arguments.prefill_rate is not None or arguments.decode_rate is not None:
        asked["rates"] = {
            "prefill_tokens_per_second": arguments.prefill_rate, "decode_tokens_per_second": arguments.decode_rate,
        }  # fmt: skip
    return asked


def _whole(value: float, name: str) -> int:
    try:
        return round(value)
    except (ValueError, OverflowError):
        _end(f"{name}: give a number")


def _lengths(text: str) -> Document:
    """`p50=1000,p95=6000` as the call's body has it."""
    made: Document = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if not (value.isascii() and value.isdigit() and len(value) < 10) or name in made:
            _end(f"{part.strip()[:50]!r}: give lengths such as mean=1500, or p50=1000,p95=6000")
        made[name] = int(value)
    return made


def _document_in(file: str) -> Document:
    """Raises BadConfig. Ends the program where there is no such file."""
    from policy.planning.config_json import TEXT_MAX_BYTES, read_text

    try:
        if file == _STANDARD_INPUT:
            return read_text(sys.stdin.buffer.read(TEXT_MAX_BYTES + 1))
        with open(file, "rb") as opened:
            return read_text(opened.read(TEXT_MAX_BYTES + 1))
    except OSError as error:
        _end(f"{file}: {error.strerror}")


def _end(says: str) -> NoReturn:
    print(f"headworks: {says}", file=sys.stderr)
    raise SystemExit(_WRONG)
