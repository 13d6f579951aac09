"""The only writer of nodes, GPUs, engines, models, artifacts and pools."""

from controlplane.fleet.services import artifacts
from controlplane.fleet.services.engines import ENGINES
from controlplane.fleet.services.models import MODELS
from controlplane.fleet.services.nodes import NODES, describe_gpu, described_with_health, page_gpus
from controlplane.fleet.services.pools import POOLS
from controlplane.fleet.services.reports import take_report

__all__ = [
    "ENGINES", "MODELS", "NODES", "POOLS", "artifacts", "describe_gpu",
    "described_with_health", "ensure_node", "page_gpus", "take_report",
]  # fmt: skip

ensure_node = NODES.ensure
