"""Row 7: a model is spread over GPUs that it does not need, or that reach each other too slowly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql
from controlplane.diagnosis.detectors.measured import engines_of, model_of
from controlplane.diagnosis.detectors.restarting import ROLL, desired, is_vllm
from policy.kv import capacity_tokens, kv_budget_bytes
from policy.planning.fit import UTILISATION_PERMILLE, usual_allowance
from wire.canonical import Document
from wire.engine_arguments import value_of, whole_of

_TENSOR, _PIPELINE = "tensor-parallel-size", "pipeline-parallel-size"
_SHORT_NAMES = ("tp", "pp")
_NVLINK = "NV"
_WAITING_MIN = 1.0


class _Spread(NamedTuple):
    """How one engine is spread. `slow_links`: pairs of its GPUs without NVLink; None: nobody tells.

    `tokens_alone`: of KV cache on one GPU, if the model fits it with its longest context; 0: it does not; None: nobody
    knows.
    """

    engine: str
    ranks: int
    slow_links: int | None
    tokens_alone: int | None


class WrongParallelism(Detector):
    """Tensor parallelism over PCIe, or of a model that fits one GPU in a pool where requests wait.

    Over NVLink a model that would fit one GPU may be spread for the latency of single requests: that is a choice, and
    no finding until throughput is what lacks. What is not known of memory or links counts for neither side.
    """

    number = 7
    name = "wrong_parallelism"
    title = _("Wrong parallelism")
    explanation = _(
        "Tensor parallelism lets the GPUs agree in every layer for every token. Over NVLink that is fast; over PCIe "
        "decoding, which is bound by bandwidth already, waits for it. A model that fits one GPU serves more as "
        "independent replicas: each has a batch of its own, and nothing to agree on. Spread for latency, replicate for "
        "throughput."
    )
    weighs_window = False
    queries: ClassVar = {
        "links": "max by (node, gpu, peer, link) (headworks_gpu_topology_info)",
        "held": 'max by (node, gpu, engine) (headworks_gpu_process_memory_bytes{engine!=""})',
        "waiting": promql.typical("headworks_engine_requests_waiting", "pool"),
        "queue": promql.typical("headworks_gateway_queue_length", "pool"),
    }

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        for facts in fleet.pools.values():
            spread = [
                _spread(row, facts, readings, fleet)
                for row in engines_of(facts, fleet).values()
                if (whole_of(_TENSOR, row["arguments"]) or 1) > 1
            ]
            name = facts.row["name"]
            waits = sum(readings.by_pool(query).get(name, 0.0) for query in ("waiting", "queue"))
            judged = [(confidence, each) for each in spread if (confidence := _confidence(each, waits)) is not None]
            if judged:
                confidence, worst = max(judged, key=lambda each: (each[0], each[1].engine))
                yield self._finding(facts, worst, confidence, waits, fleet)

    def _finding(self, facts: PoolFacts, seen: _Spread, confidence: int, waits: float, fleet: Fleet) -> Finding:
        pool = facts.row["name"]
        evidence = [Evidence("tensor_parallel", seen.ranks, "count", 1.0)]
        if seen.slow_links is not None:
            evidence.append(Evidence("links_without_nvlink", seen.slow_links, "count", 0.0, self.queries["links"]))
        if seen.tokens_alone is not None:
            evidence.append(Evidence("kv_tokens_on_one_gpu", seen.tokens_alone, "tokens"))
        evidence.append(Evidence("waiting", waits, "requests", _WAITING_MIN, self.queries["waiting"]))
        slow, alone = bool(seen.slow_links), bool(seen.tokens_alone)
        said = (
            _("{pool}: {engine} is spread over {ranks} GPUs by PCIe, though the model fits one") if slow and alone
            else _("{pool}: {engine} is spread over {ranks} GPUs that PCIe connects") if slow
            else _("{pool}: {engine} is spread over {ranks} GPUs, though the model fits one, and requests wait")
        )  # fmt: skip
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy(said, pool=pool, engine=seen.engine, ranks=seen.ranks),
            confidence_permille=confidence,
            evidence=tuple(evidence),
            pools=(pool,),
            tenants=tuple(sorted(fleet.tenants_of.get(pool, ()))),
            levers=tuple(_levers(facts, seen, fleet)),
        )


def _confidence(seen: _Spread, waits: float) -> int | None:
    """None: no finding."""
    alone, slow = bool(seen.tokens_alone), bool(seen.slow_links)
    if slow:
        return 900 if alone else 600
    if alone and waits >= _WAITING_MIN:
        # For throughput; where links are not known it may be for latency over NVLink.
        return 650 if seen.slow_links == 0 else 600
    return None


def _spread(row: Document, facts: PoolFacts, readings: Readings, fleet: Fleet) -> _Spread:
    own = {gpu for node, gpu, engine in readings.by("held", "node", "gpu", "engine") if engine == row["name"]}
    links = {
        (frozenset((gpu, peer)), link)
        for node, gpu, peer, link in readings.by("links", "node", "gpu", "peer", "link")
        if node == row["node"] and (len(own) < 2 or {gpu, peer} <= own)
    }
    slow = sum(not link.startswith(_NVLINK) for _pair, link in links)
    ranks = whole_of(_TENSOR, row["arguments"]) or 1
    return _Spread(row["name"], ranks, slow if links else None, _tokens_alone(row, facts, fleet))


def _tokens_alone(row: Document, facts: PoolFacts, fleet: Fleet) -> int | None:
    """By the size of its files, which is that of its weights, and what the model's row says of its KV cache."""
    model, weights = model_of(facts, fleet), row["model_bytes"]
    memory = [gpu["memory_bytes"] for gpu in fleet.gpus if gpu["node"] == row["node"] and gpu["memory_bytes"]]
    if model is None or not weights or not memory or not model["kv_bytes_per_token"]:
        return None
    budget = kv_budget_bytes(
        gpu_memory_bytes=min(memory),
        gpu_memory_utilization_permille=_utilisation_permille(row),
        weights_bytes=weights,
        overhead_bytes=usual_allowance(min(memory)).total,
    )
    tokens = capacity_tokens(budget, model["kv_bytes_per_token"])
    longest = row["max_length_tokens"] or model["max_context_tokens"]
    return tokens if tokens >= longest else 0


def _utilisation_permille(row: Document) -> int:
    try:
        share = float(value_of("gpu-memory-utilization", row["arguments"]) or UTILISATION_PERMILLE / 1000)
    except ValueError:
        return UTILISATION_PERMILLE
    return round(1000 * share) if 0 < share <= 1 else UTILISATION_PERMILLE


def _levers(facts: PoolFacts, seen: _Spread, fleet: Fleet) -> Iterator[Lever]:
    if not is_vllm(facts, fleet):
        return
    if seen.tokens_alone:
        edits = desired(facts, {_TENSOR: 1}, without=_SHORT_NAMES)
        if edits:
            yield Lever(
                key="replicas",
                title=format_lazy(_("{n} replicas in the place of one engine over {n} GPUs"), n=seen.ranks),
                why=format_lazy(
                    _(
                        "Beside the weights one GPU has room for {tokens} tokens of KV cache, and the longest context "
                        "fits."
                    ),
                    tokens=seen.tokens_alone,
                ),
                edits=edits,
                advice=format_lazy(
                    _(
                        "Start an engine on each of the {n} GPUs (CUDA_VISIBLE_DEVICES) and add those to the pool, or "
                        "let one server do it with data-parallel-size {n}; roll it out engine by engine."
                    ),
                    n=seen.ranks,
                ),
            )
    elif seen.slow_links and seen.tokens_alone == 0:
        edits = desired(facts, {_TENSOR: 1, _PIPELINE: seen.ranks}, without=_SHORT_NAMES)
        if edits:
            yield Lever(
                key="pipeline",
                title=format_lazy(_("A pipeline over the {n} GPUs"), n=seen.ranks),
                why=_(
                    "The model fits no single GPU. A pipeline passes on only what leaves a stage, where tensor "
                    "parallelism agrees in every layer; single requests take longer by it."
                ),
                edits=edits,
                advice=ROLL,
            )
