"""Replicas, tensor parallelism or a pipeline: the seed's decision tree, with its questions and answers in words.

Source: seed 1, section 7: what fits one GPU is replicated; else the smallest tensor parallelism that fits within linked
GPUs; beyond a machine, tensor parallelism within it and a pipeline between machines. vLLM, "Parallelism and scaling":
without NVLink a pipeline instead of tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from policy.kv import ONE_GPU, Sharding
from policy.planning.fit import Fit, Serving, fit
from policy.planning.gpus import Machines
from policy.planning.shapes import ModelShape

# No engine has been spread over more.
_NODES_OF_AN_ENGINE_MAX = 64

Kind = Literal["replicas", "tensor_parallel", "pipeline", "tensor_and_pipeline"]


class Step(NamedTuple):
    """A question of the tree, its answer, and why."""

    question: str
    answer: Literal["yes", "no"]
    why: str


class Option(NamedTuple):
    """One way to spread an engine over GPUs, and how many such engines the machines hold."""

    kind: Kind
    fit: Fit
    replicas: int
    spare_gpus: int

    @property
    def tokens(self) -> int:
        """Of context that can live at once, over all replicas."""
        return self.replicas * self.fit.tokens if self.fit.fits else 0


class Choice(NamedTuple):
    """`option` is None where nothing fits. `closest`: the fit that lacks least."""

    option: Option | None
    steps: tuple[Step, ...]
    closest: Fit


def options(shape: ModelShape, serving: Serving, machines: Machines) -> list[Option]:
    """Every way in which the machines can hold an engine at all, also where its memory is too small; smallest first."""
    found = []
    for sharding in _shardings(shape, machines):
        per_node = machines.gpus_per_node
        if sharding.gpus <= per_node:
            replicas = machines.nodes * (per_node // sharding.gpus)
        else:
            replicas = machines.nodes // (sharding.gpus // per_node)
        one = fit(shape, serving, machines.gpu.memory_bytes, sharding)
        found.append(Option(_kind(sharding), one, replicas, machines.gpus - replicas * sharding.gpus))
    return found


def _shardings(shape: ModelShape, machines: Machines) -> Iterator[Sharding]:
    """Within one machine tensor parallelism or a pipeline; over several, both, with each machine used in whole."""
    per_node = machines.gpus_per_node
    within = [Sharding(ranks) for ranks in range(1, per_node + 1)]
    within += [Sharding(1, stages) for stages in range(2, per_node + 1)]
    counts = range(2, min(machines.nodes, _NODES_OF_AN_ENGINE_MAX) + 1)
    across = [Sharding(per_node, nodes) for nodes in counts]
    across += [Sharding(1, per_node * nodes) for nodes in counts if per_node > 1]
    yield from (each for each in (*within, *across) if shape.can_be_split(each))


def _kind(sharding: Sharding) -> Kind:
    if sharding == ONE_GPU:
        return "replicas"
    if sharding.pipeline_parallel == 1:
        return "tensor_parallel"
    return "pipeline" if sharding.tensor_parallel == 1 else "tensor_and_pipeline"


def choose(shape: ModelShape, serving: Serving, machines: Machines) -> Choice:
    """The option that the tree leads to, and how it got there."""
    found = options(shape, serving, machines)
    closest = min((each.fit for each in found), key=lambda one: (one.missing_bytes, one.sharding.gpus))
    steps: list[Step] = []
    alone = found[0]
    context = f"one sequence of {serving.context_tokens} tokens"
    if alone.fit.fits:
        why = (
            f"its weights, what it computes with and {context} fit: {_replicas(alone.replicas)}, each with a "
            "batch of its own: no communication between GPUs, and throughput grows almost in proportion"
        )
        steps.append(Step("Does the model fit one GPU?", "yes", why))
        return Choice(alone, tuple(steps), closest)
    steps.append(Step("Does the model fit one GPU?", "no", f"{_gb(alone.fit.missing_bytes)} are missing for {context}"))
    chosen = _within_a_machine(found, machines, steps) or _across(found, machines, steps)
    return Choice(chosen, tuple(steps), closest)


def _within_a_machine(found: list[Option], machines: Machines, steps: list[Step]) -> Option | None:
    inside = [each for each in found if 1 < each.fit.sharding.gpus <= machines.gpus_per_node]
    question = f"Does it fit the {machines.gpus_per_node} GPUs of one machine?"
    if machines.gpus_per_node == 1:
        steps.append(Step("Has a machine more than one GPU?", "no", "there is nothing to share it out to within it"))
        return None
    tensor = _smallest(inside, "tensor_parallel")
    pipeline = _smallest(inside, "pipeline")
    if tensor is None and pipeline is None:
        least = min((each.fit.missing_bytes for each in inside), default=None)
        why = (
            "no number of them shares out its heads or layers" if least is None else f"{_gb(least)} are missing on each"
        )
        steps.append(Step(question, "no", why))
        return None
    chosen = tensor or pipeline
    if machines.link == "nvlink":
        steps.append(
            Step(question, "yes", f"{chosen.fit.sharding.gpus} of them are the fewest that do" if chosen else "")
        )
        why = (
            "an all-reduce in every layer of every token goes over NVLink: tensor parallelism, in the smallest degree "
            "that fits"
        )
        if tensor is None:
            why = "but its heads cannot be shared out: a pipeline, which cuts between layers"
        steps.append(Step("Are they linked by NVLink?", "yes", why))
        return chosen
    chosen = pipeline or tensor
    steps.append(Step(question, "yes", f"{chosen.fit.sharding.gpus} of them are the fewest that do" if chosen else ""))
    why = (
        "an all-reduce in every layer of every token would go over PCIe, and decode waits for it: a pipeline passes on "
        "only what leaves a stage; tensor parallelism still lowers the latency of single requests, if that counts more"
    )
    if pipeline is None:
        why = "tensor parallelism over PCIe makes decode wait in every layer, and no pipeline fits: measure it first"
    steps.append(Step("Are they linked by NVLink?", "no", why))
    return chosen


def _across(found: list[Option], machines: Machines, steps: list[Step]) -> Option | None:
    question = f"Does it fit all {machines.gpus} GPUs of {machines.nodes} machines?"
    if machines.nodes == 1:
        return None
    outside = [each for each in found if each.fit.sharding.gpus > machines.gpus_per_node]
    chosen = (
        _smallest(outside, "tensor_and_pipeline" if machines.link == "nvlink" else "pipeline")
        or _smallest(outside, "pipeline")
        or _smallest(outside, "tensor_and_pipeline")
    )
    if chosen is None:
        least = min((each.fit.missing_bytes for each in outside), default=None)
        why = (
            "no split of its heads and layers uses machines in whole"
            if least is None
            else f"{_gb(least)} are missing on each"
        )
        steps.append(Step(question, "no", why))
        return None
    stages, nodes = chosen.fit.sharding.pipeline_parallel, chosen.fit.sharding.gpus // machines.gpus_per_node
    inside = "tensor parallelism within each, " if chosen.kind == "tensor_and_pipeline" else ""
    why = f"{nodes} machines are the fewest that do: {inside}a pipeline of {stages} stages over the net between them"
    steps.append(Step(question, "yes", why))
    return chosen


def _smallest(found: list[Option], kind: Kind) -> Option | None:
    fitting = [each for each in found if each.kind == kind and each.fit.fits and each.replicas]
    return min(fitting, key=lambda each: each.fit.sharding.gpus, default=None)


def _gb(size: int) -> str:
    return f"{size / 10**9:.1f} GB"


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} independent replicas"
