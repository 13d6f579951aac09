"""Plans as tables for a terminal, made from their documents."""

from __future__ import annotations

from collections.abc import Sequence

from policy.planning.architectures import MODEL_TYPES
from policy.planning.gpus import GPUS
from policy.planning.known import KNOWN
from wire.canonical import Document

_GB, _GIB = 10**9, 2**30


def table(rows: Sequence[Sequence[object]]) -> str:
    """Columns under each other; the first to the left, numbers to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    )


def gb(size: int) -> str:
    return f"{size / _GB:.1f} GB"


def plan_text(plan: Document) -> str:
    """All of a plan."""
    parts = [_model(plan), *_tree(plan["tree"])]
    if not plan["fits"]:
        parts += ["", *_missing(plan)]
    else:
        parts += ["", _memory(plan["chosen"]), "", _start(plan["start"])]
        if plan["start"]["waits"]:
            parts += ["", _waits(plan["start"]["waits"])]
    return "\n".join([*parts, "", _options(plan["options"])])


def _model(plan: Document) -> str:
    model, serving, machines = plan["model"], plan["serving"], plan["machines"]
    active = model["active_parameters"]
    of_experts = f" ({active / 1e9:.1f} B active)" if model["experts"] else ""
    return (
        f"{model['model_type']}, {model['parameters'] / 1e9:.2f} B parameters{of_experts}, weights in "
        f"{serving['weights']} {gb(serving['weights_bytes'])}, contexts of {serving['context_tokens']} tokens\n"
        f"{machines['gpus']} × {machines['gpu']} of {machines['memory_bytes'] / _GIB:.1f} GiB, "
        f"{machines['per_node']} a machine, {machines['link']}"
    )


def _tree(steps: Sequence[Document]) -> list[str]:
    return [f"{step['question']} {step['answer']}: {step['why']}" for step in steps]


def _missing(plan: Document) -> list[str]:
    closest = plan["closest"]
    where = f"{closest['gpus']} GPU" + ("s" if closest["gpus"] > 1 else "")
    first = f"It does not fit: over {where} {gb(closest['missing_bytes'])} are missing on each. What would do:"
    return [first, *[f"- {remedy['says']}" for remedy in plan["remedies"] or [{"says": "nothing that was tried"}]]]


def _memory(chosen: Document) -> str:
    return table(
        [
            ("of each GPU", ""),
            ("usable", gb(chosen["usable_bytes"])),
            ("weights", gb(chosen["weights_bytes"])),
            ("activations, CUDA graphs", gb(chosen["allowance_bytes"])),
            ("KV cache", gb(chosen["kv_budget_bytes"])),
            ("bytes a token", chosen["kv_bytes_per_token"]),
            ("replicas", chosen["replicas"]),
            ("tokens alive, a replica", chosen["tokens"]),
            ("tokens alive, all", chosen["tokens_of_all"]),
        ]
    )


def _start(start: Document) -> str:
    lines = [
        f"{name} {start[name]['value']}: {start[name]['why']}"
        for name in ("max_num_seqs", "max_num_batched_tokens", "queue_cap")
        if start[name] is not None
    ]
    if (rates := start["rates"]) is None:
        return "\n".join([*lines, "no speed of this GPU is known, so nothing is said of requests a second"])
    a_second = start["requests_per_second_of_a_replica"]
    lines.append(
        f"a GPU reads {rates['prefill_tokens_per_second']:.0f} and writes {rates['decode_tokens_per_second']:.0f} "
        f"tokens a second ({rates['from']}); a replica finishes {a_second:.2f} requests a second"
    )
    return "\n".join(lines)


def _waits(waits: Sequence[Document]) -> str:
    rows: list[Sequence[object]] = [("load", "requests/s", "service times", "mean wait", "waiting")]
    rows += [
        (
            f"{wait['load_permille'] / 10:g} %", f"{wait['requests_per_second']:.2f}", f"{wait['service_times']:.1f}",
            f"{wait['seconds']:.2f} s", f"{wait['waiting']:.1f}",
        )
        for wait in waits
    ]  # fmt: skip
    return table(rows)


def _options(options: Sequence[Document]) -> str:
    rows: list[Sequence[object]] = [("way", "TP", "PP", "replicas", "weights/GPU", "tokens alive, all", "missing/GPU")]
    rows += [
        (
            option["kind"].replace("_", " "), option["tensor_parallel"], option["pipeline_parallel"],
            option["replicas"], gb(option["weights_bytes"]), option["tokens_of_all"] if option["fits"] else "-",
            "-" if option["fits"] else gb(option["missing_bytes"]),
        )
        for option in options
    ]  # fmt: skip
    return table(rows)


def fan_out_text(made: Document) -> str:
    """Calls, then models."""
    head = ("calls/s", "prefill tokens/s", "decode tokens/s", "prefill GPUs", "decode GPUs")
    rows: list[Sequence[object]] = [("call", *head), *(_demand(each) for each in made["calls"])]
    models: list[Sequence[object]] = [("model", *head, "GPUs")]
    models += [(*_demand(each), "-" if each["gpus"] is None else each["gpus"]) for each in made["models"]]
    first = f"{made['requests_per_second']:g} requests of users a second, {made['calls_per_request']:g} calls each"
    return "\n\n".join([first, table(rows), table(models)])


def _demand(demand: Document) -> tuple[str, ...]:
    return (
        demand["name"],
        f"{demand['calls_per_second']:.2f}",
        f"{demand['prefill_tokens_per_second']:.0f}",
        f"{demand['decode_tokens_per_second']:.0f}",
        *("-" if demand[name] is None else f"{demand[name]:.2f}" for name in ("prefill_gpus", "decode_gpus")),
    )


def list_text() -> str:
    """What is known by name."""
    rows: list[Sequence[object]] = [("GPU", "memory", "bandwidth", "bf16 peak", "link")]
    for gpu in GPUS:
        bandwidth, flops = gpu.bandwidth_bytes_per_second or 0, gpu.bf16_flops or 0
        rows.append(
            (
                gpu.name, f"{gpu.memory_bytes / _GIB:.1f} GiB", f"{bandwidth / _GB:.0f} GB/s",
                f"{flops / 1e12:.0f} TFLOP/s", gpu.link,
            )
        )  # fmt: skip
    return "\n\n".join([table(rows), "\n".join(["models", *KNOWN]), f"kinds of config.json: {', '.join(MODEL_TYPES)}"])
