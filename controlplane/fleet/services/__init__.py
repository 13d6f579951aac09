"""The only writer of nodes, GPUs, engines, models, aliases, artifacts, pools and acts."""

from controlplane.fleet.services import acts, artifacts, versions
from controlplane.fleet.services.aliases import ALIASES
from controlplane.fleet.services.compatibility_rules import COMPATIBILITY_RULES
from controlplane.fleet.services.engines import ENGINES, described_with_facts, facts_of
from controlplane.fleet.services.models import MODELS
from controlplane.fleet.services.nodes import NODES, describe_gpu, described_with_health, page_gpus
from controlplane.fleet.services.pools import POOLS
from controlplane.fleet.services.reports import take_report

__all__ = [
    "ALIASES", "COMPATIBILITY_RULES",
    "ENGINES", "MODELS", "NODES", "POOLS", "acts", "artifacts", "describe_gpu", "described_with_facts",
    "described_with_health", "ensure_node", "facts_of", "page_gpus", "take_report", "versions",
]  # fmt: skip

ensure_node = NODES.ensure
