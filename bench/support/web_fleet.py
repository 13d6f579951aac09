"""`python -m bench.support.web_fleet NODES MINUTES`: a fleet straight into a control plane's database and metric store.

Its settings come from the environment, as the web process has them. Prints the session cookies of VIEWERS, one a line.
"""

from __future__ import annotations

import itertools
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import django

NODES_A_POOL, GPUS, ENGINES_A_NODE, GATEWAYS, TENANTS, VIEWERS = 6, 8, 2, 4, 20, 50
STEP_SECONDS = 15
_GAUGES = ("GPU_UTIL", "GPU_TEMP", "FB_USED", "POWER_USAGE", "SM_CLOCK")
_BOUNDS = ("0.05", "0.1", "0.25", "0.5", "1", "2", "5", "10", "30", "+Inf")
# Requests a second of a tenant in a pool, by how they end and whether they kept what was promised.
_ENDS = (("ok", "none", 2.0), ("refused", "tpm_limit", 0.1), ("failed", "timeout", 0.01))
_KEPT = {"met": 2.0, "missed": 0.02}
Labelled = tuple[dict[str, str], float]


def main(nodes: int, minutes: int) -> None:
    django.setup()
    fill_rows(nodes)
    fill_samples(nodes, minutes)
    print("\n".join(cookies()))


def pool_of(node: int) -> str:
    return f"pool-{node // NODES_A_POOL}"


def fill_rows(nodes: int) -> None:
    from django.utils import timezone

    from controlplane.alerts.models import Incident
    from controlplane.core.models import AuditEntry, Target
    from controlplane.fleet.models import Engine, Gpu, Model, Node, Pool
    from controlplane.routing.models import Route
    from controlplane.tenants.models import Tenant, TenantKey

    now = timezone.now()
    model = Model.objects.create(name="meta-llama/Llama-3.1-8B", max_context_tokens=131_072)
    promised = {"model": model, "ttft_slo_ms": 2000, "tpot_slo_ms": 50}
    pools = {name: Pool.objects.create(name=name, **promised) for name in dict.fromkeys(map(pool_of, range(nodes)))}
    reported = {"gpu_source": "nvml", "agent_version": "0.1.0", "driver_version": "570.1", "reported_at": now}
    Node.objects.bulk_create(Node(name=f"node-{number}", **reported) for number in range(nodes))
    rows = {node.name: node for node in Node.objects.all()}
    Gpu.objects.bulk_create(
        Gpu(node=rows[f"node-{number}"], uuid=f"GPU-{number}-{gpu}", index=gpu, model="NVIDIA H100 80GB HBM3",
            memory_bytes=80 << 30, reported_at=now)
        for number in range(nodes) for gpu in range(GPUS)
    )  # fmt: skip
    served = {"url": "http://10.0.0.9:8000", "served_model": model.name, "kv_capacity_tokens": 420_000}
    seen = {"state": "up", "version": "0.11.0", "reported_at": now}
    Engine.objects.bulk_create(
        Engine(name=name, node=rows[f"node-{number}"], pool=pools[pool_of(number)], **served, **seen)
        for number in range(nodes)
        for name in engines_of(number)
    )
    joined = [("gateway", f"gateway-{each}") for each in range(GATEWAYS)]
    joined += [("node", f"node-{each}") for each in range(nodes)]
    about = {"version": "0.1.0", "protocol": 1, "token_expires_at": now + timedelta(days=30), "last_seen_at": now}
    Target.objects.bulk_create(
        Target(kind=kind, name=name, token_hash=f"{kind}-{name}", **about) for kind, name in joined
    )
    Incident.objects.bulk_create(
        Incident(fingerprint=f"{number}", source="event", severity="critical" if number % 4 == 0 else "warning",
                 title=f"node-{number}: XID 79 on GPU 3", node=f"node-{number}", started_at=now)
        for number in range(0, nodes, 5)
    )  # fmt: skip
    change: dict[str, Any] = {"at": now, "actor_kind": "user", "actor": "ada", "noun": "tenant", "action": "update"}
    AuditEntry.objects.bulk_create(
        AuditEntry(change_id=uuid.uuid4(), key=f"tenant-{number % TENANTS}", reason="benchmark", **change)
        for number in range(1000)
    )
    Route.objects.create(name="all", order=100, pools={pool_of(0): 1000})
    tenants = [Tenant.objects.create(name=f"tenant-{number}") for number in range(TENANTS)]
    TenantKey.objects.create(tenant=tenants[0], key_hash="x", prefix="hw-x")


def engines_of(node: int) -> list[str]:
    return [f"node-{node}-{each}" for each in range(ENGINES_A_NODE)]


def fill_samples(nodes: int, minutes: int) -> None:
    """Up to now, every STEP_SECONDS: gauges that jump, counters that grow; owner after owner."""
    import numpy as np

    from controlplane.telemetry.receiver import store_path
    from controlplane.telemetry.store.admission import Window
    from controlplane.telemetry.store.writer import Owner, writer_of
    from wire.write_body import key_of

    dice, now_ms = np.random.default_rng(5), int(time.time()) * 1000
    times = list(range(now_ms - minutes * 60_000, now_ms, STEP_SECONDS * 1000))
    writer, window = writer_of(store_path()), Window(0, 2**60, 0)
    owners = [(Owner("node", f"node-{number}"), list(node_series(number))) for number in range(nodes)]
    owners += [(Owner("gateway", f"gateway-{each}"), list(gateway_series(each, nodes))) for each in range(GATEWAYS)]
    for owner, series in owners:
        keys = [key_of(labels) for labels, _level in series]
        levels = np.array([level for _labels, level in series])[:, None]
        jumps = dice.normal(1, 0.08, (len(series), len(times)))
        grows = np.array([is_counter(labels) for labels, _level in series])[:, None]
        values = np.where(grows, np.cumsum(levels * jumps * STEP_SECONDS, axis=1), levels * jumps)
        fresh = {key: labels for key, (labels, _level) in zip(keys, series, strict=True)}
        columns = ([len(times)] * len(keys), times * len(keys), values.ravel().tolist())
        writer.write(owner, keys, fresh, columns, window, len(keys))


def is_counter(labels: dict[str, str]) -> bool:
    return labels["__name__"].endswith(("_total", "_bucket", "_sum", "_count"))


def node_series(number: int) -> Iterator[Labelled]:
    """With the level of each, of counters a second."""
    node = f"node-{number}"
    for gpu in range(GPUS):
        for name in _GAUGES:
            yield {"__name__": f"DCGM_FI_DEV_{name}", "node": node, "gpu": str(gpu), "UUID": f"GPU-{number}-{gpu}"}, 60
    for engine in engines_of(number):
        whose = {"node": node, "engine": engine, "pool": pool_of(number), "kind": "vllm", "model": "llama"}
        for name, level in (
            ("up", 1.0), ("kv_cache_usage_ratio", 0.6), ("requests_running", 14), ("requests_waiting", 3),
            ("preemptions_total", 0.1), ("prompt_tokens_total", 2000), ("generation_tokens_total", 500),
        ):  # fmt: skip
            yield {"__name__": f"headworks_engine_{name}", **whose}, level
        for name, seconds in (("queue_seconds", 0.1), ("e2e_seconds", 1.3)):
            yield from histogram(f"headworks_engine_{name}", whose, seconds)


def gateway_series(number: int, nodes: int) -> Iterator[Labelled]:
    """Each tenant in two pools."""
    pools = list(dict.fromkeys(map(pool_of, range(nodes))))
    for pool, slo, (outcome, rate) in itertools.product(pools, ("ttft", "tpot"), _KEPT.items()):
        kept = {"gateway": f"gateway-{number}", "pool": pool, "slo": slo, "outcome": outcome}
        yield counter("slo_promises", kept, rate)
    for tenant in range(TENANTS):
        for pool in {pools[tenant % len(pools)], pools[(tenant + 1) % len(pools)]}:
            whose = {"gateway": f"gateway-{number}", "tenant": f"tenant-{tenant}", "pool": pool}
            whose["priority_class"] = "normal"
            for outcome, reason, rate in _ENDS:
                yield counter("requests", {**whose, "outcome": outcome, "reason": reason}, rate)
            for outcome, rate in _KEPT.items():
                yield counter("slo_requests", {**whose, "outcome": outcome}, rate)
            for kind, rate in (("prompt", 800), ("generation", 200)):
                yield counter(f"{kind}_tokens", whose, rate)
            for name, seconds in (("queue", 0.05), ("ttft", 0.4), ("tpot", 0.03), ("e2e", 1.4)):
                yield from histogram(f"headworks_gateway_{name}_seconds", whose, seconds)


def counter(name: str, labels: dict[str, str], rate: float) -> Labelled:
    return {"__name__": f"headworks_gateway_{name}_total", **labels}, rate


def histogram(name: str, labels: dict[str, str], seconds: float) -> Iterator[Labelled]:
    """Two a second, half of them below the mean."""
    for bound in _BOUNDS:
        share = 1.0 if bound == "+Inf" else min(1.0, float(bound) / seconds / 2)
        yield {"__name__": f"{name}_bucket", "le": bound, **labels}, 2 * share
    yield {"__name__": f"{name}_sum", **labels}, 2 * seconds
    yield {"__name__": f"{name}_count", **labels}, 2.0


def cookies() -> list[str]:
    """A session each of people who may look."""
    from django.conf import settings
    from django.test import Client

    from controlplane.core.models import Role, User

    found = []
    for number in range(VIEWERS):
        client = Client()
        client.force_login(User.objects.create(username=f"viewer-{number}", role=Role.VIEWER))
        found.append(client.cookies[settings.SESSION_COOKIE_NAME].value)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
