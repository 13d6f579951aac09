"""Traffic of a day on which nothing is wrong: of several tenants, mixed, at a little more than half of what fits."""

from __future__ import annotations

from bench.support.lab.clients import Kind
from bench.support.lab.plan import EMBEDDER, MODEL
from simulator.lengths import LogNormal
from simulator.pathologies import asks

HEALTHY: dict[str, Kind] = {
    "support": Kind(
        "support",
        asks.users(MODEL, LogNormal(150, 0.6, 800), LogNormal(80, 0.5, 250)),
        3.0,
    ),
    "research": Kind(
        "research",
        asks.users(MODEL, LogNormal(1900, 0.25, 3200), LogNormal(60, 0.4, 150)),
        0.3,
        ttft_seconds=6.0,
    ),
    "agents": Kind("agents", asks.agents(MODEL, (2, 3, 4), 60), 0.15),
    "rag": Kind("rag", asks.retrieval(MODEL, EMBEDDER, 80), 0.25),
    "nightly": Kind(
        "nightly",
        asks.batch_lines(MODEL, LogNormal(250, 0.4, 600), 100),
        0.2,
        resends=2,
        resend_seconds=8.0,
        gives_way=True,
    ),
}
# Whose answers are goodput.
JUDGED = tuple(name for name, kind in HEALTHY.items() if not kind.gives_way)
