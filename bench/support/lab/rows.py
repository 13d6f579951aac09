"""The twenty pathologies of the diagnosis, in the order of its table, as the lab injects them."""

from __future__ import annotations

from functools import partial

from bench.support.lab.clients import Kind
from bench.support.lab.pathology import Edit, GpuEvent, Pathology
from bench.support.lab.plan import EMBEDDER, MODEL
from simulator.gpu import fault
from simulator.lengths import LogNormal
from simulator.pathologies import asks

_CHAT = ("chat-1", "chat-2")
_ALL_TO_CHAT: Edit = ("routes", "long-prompts", None)
_SHORT = LogNormal(120, 0.5, 600)


def _at_chat(*conditions: dict[str, object]) -> dict[str, list[dict[str, object]]]:
    return {engine: list(conditions) for engine in _CHAT}


_KV_EXHAUSTED = Pathology(
    "kv_exhausted",
    "pool/chat",
    # Every token of the cache is admitted, and a fifth of it is not there.
    conditions=_at_chat({"kind": "kv_leak", "share": 0.2}),
    lasting=True,
    edits=[("pools", "chat", {"kv_admit_permille": 1000})],
    tenants={"documents": {"weight": 8, "default_priority_class": "batch"}},
    traffic={"documents": Kind("documents", asks.documents(MODEL, 700, 40), 4.0)},
)
_PREEMPTION_THRASH = Pathology(
    "preemption_thrash",
    "pool/chat",
    conditions=_at_chat({"kind": "kv_overstated", "factor": 4.0}),
    lasting=True,
    # Of so little weight that the others have a right to all that they ask for: what they lose is of the cache, and
    # not of their share.
    tenants={"writers": {"weight": 1}},
    traffic={"writers": Kind("writers", asks.writers(MODEL, 60, 200), 8.0)},
)
_VRAM_FRAGMENTATION = Pathology(
    "vram_fragmentation",
    "engine/chat-1",
    # Twice within the window that is looked back over.
    arguments={"chat-1": {"out-of-memory-seconds": 8}},
    lever="eager",
)
_PREFILL_STALL = Pathology(
    "prefill_stall",
    "pool/chat",
    arguments={engine: {"max-num-batched-tokens": 8192, "kv-capacity-tokens": 24_000} for engine in _CHAT},
    edits=[_ALL_TO_CHAT],
    tenants={"summaries": {"weight": 8}},
    traffic={"summaries": Kind("summaries", asks.documents(MODEL, 2800, 10), 0.3)},
)
_HEAD_OF_LINE = Pathology(
    "head_of_line",
    "pool/chat",
    # Room for all in the cache: it is the reading that they wait for.
    arguments={engine: {"kv-capacity-tokens": 24_000} for engine in _CHAT},
    edits=[_ALL_TO_CHAT],
    tenants={"mixed": {"weight": 8}},
    traffic={"mixed": Kind("mixed", asks.mixed_sizes(MODEL, 60, 2500, 0.7, 5), 2.1)},
)
_NOISY_NEIGHBOUR = Pathology(
    "noisy_neighbour",
    "tenant/noisy",
    tenants={"noisy": {"weight": 1}},
    traffic={"noisy": Kind("noisy", asks.documents(MODEL, 850, 16), 8.0)},
)
_WRONG_PARALLELISM = Pathology(
    "wrong_parallelism",
    "pool/chat",
    arguments={engine: {"tensor-parallel-size": 2, "interconnect": "pcie"} for engine in _CHAT},
)
_QUEUE_DEBT = Pathology(
    "queue_debt",
    "pool/chat",
    edits=[("pools", "chat", {"queue_cap": 500, "queue_ttl_ms": 60_000})],
    tenants={"surge": {"weight": 2}},
    traffic={"surge": Kind("surge", asks.users(MODEL, _SHORT, LogNormal(150, 0.4, 250)), 9.0)},
)
_RETRY_STORM = Pathology(
    "retry_storm",
    "pool/chat",
    tenants={"impatient": {"weight": 1}},
    # Their time-out is shorter than an answer takes: what they send again finds even less room.
    traffic={"impatient": Kind("impatient", asks.leaving(MODEL, 60, 250, 3.0), 2.0, resends=12, resend_seconds=1.0)},
)
_OPEN_ENDED_OUTPUT = Pathology(
    "open_ended_output",
    "pool/chat",
    edits=[("models", MODEL, {"default_max_tokens": 3000, "max_tokens": 3500})],
    tenants={"talkative": {"weight": 4}},
    traffic={"talkative": Kind("talkative", asks.open_ended(MODEL, _SHORT), 2.5)},
)
_GHOST_WORK = Pathology(
    "ghost_work",
    "engine/chat-1",
    conditions={"chat-1": [{"kind": "ignores_cancel"}]},
    tenants={"leaving": {"weight": 1}},
    traffic={"leaving": Kind("leaving", asks.leaving(MODEL, 60, 400, 0.5), 1.2)},
)
_REPEAT_QUESTIONS = Pathology(
    "repeat_questions",
    "tenant/faq",
    tenants={"faq": {"weight": 2}},
    keys=16,
    traffic={"faq": Kind("faq", asks.same_questions(MODEL, 30, 60, 80), 2.5)},
)
_FAN_OUT = Pathology(
    "fan_out",
    "tenant/fanout",
    tenants={"fanout": {"weight": 4}},
    traffic={"fanout": Kind("fanout", asks.retrieval(MODEL, EMBEDDER, 60, calls=12), 0.8)},
)
_RUNAWAY_AGENT = Pathology(
    "runaway_agent",
    "tenant/runaway",
    tenants={"runaway": {"weight": 2}},
    traffic={"runaway": Kind("runaway", asks.runaway(MODEL, 400, 20), 0.05, most_at_once=1)},
)
_SOCKETS = Pathology(
    "sockets",
    "engine/chat-1",
    # Room for all in the cache: it is files that long streams need more of.
    arguments={engine: {"kv-capacity-tokens": 24_000} for engine in _CHAT},
    conditions={"chat-1": [{"kind": "few_files", "spare": 26}]},
    tenants={"readers": {"weight": 2}},
    traffic={"readers": Kind("readers", asks.writers(MODEL, 60, 300), 3.4)},
)
_API_SERVER_BOUND = Pathology(
    "api_server_bound",
    "engine/chat-1",
    # A GPU that is fast enough to wait for the process in front of it.
    arguments={"chat-1": {"speed": 1.0}},
    conditions={"chat-1": [{"kind": "front_end_bound", "token_seconds": 0.007}]},
    lasting=True,
    # What its process waits for is its own work, and not what else this machine does.
    go_first=("chat-1",),
)
_SCHEMA_COMPILE = Pathology(
    "schema_compile",
    "pool/chat",
    conditions=_at_chat({"kind": "slow_grammars", "compile_seconds": 3.0}),
    lasting=True,
    tenants={"forms": {"weight": 2}},
    traffic={"forms": Kind("forms", asks.forms(MODEL, 60), 1.5)},
)
_COLD_START = Pathology(
    "cold_start",
    "pool/chat",
    arguments={"chat-2": {"start-seconds": 15}},
    lever="local_files",
)
_DEPLOY_AND_PROBES = Pathology(
    "deploy_and_probes",
    "engine/chat-1",
    # A probe that ends it again and again.
    deploys=("chat-1",),
    goodput_percent=None,
    but="the engine that is taken out is half of chat",
)
_HARDWARE = Pathology(
    "hardware",
    "node/n2",
    gpus=[GpuEvent("n2", (0,), fault.corrupt), GpuEvent("n2", (0,), partial(fault.throw_xid, xid=48))],
    goodput_percent=None,
    but="half of the engines of chat are on the node that is cordoned",
)
PATHOLOGIES = (
    _KV_EXHAUSTED, _PREEMPTION_THRASH, _VRAM_FRAGMENTATION, _PREFILL_STALL, _HEAD_OF_LINE, _NOISY_NEIGHBOUR,
    _WRONG_PARALLELISM, _QUEUE_DEBT, _RETRY_STORM, _OPEN_ENDED_OUTPUT, _GHOST_WORK, _REPEAT_QUESTIONS, _FAN_OUT,
    _RUNAWAY_AGENT, _SOCKETS, _API_SERVER_BOUND, _SCHEMA_COMPILE, _COLD_START, _DEPLOY_AND_PROBES, _HARDWARE,
)  # fmt: skip
BY_NAME = {each.name: each for each in PATHOLOGIES}
