"""Two pathologies end to end, on one fleet of processes: one that a limit ends, and one of the hardware."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bench.support.lab.clients import Clients
from bench.support.lab.drill import Drill, Result
from bench.support.lab.findings import blind
from bench.support.lab.fleet import Lab, lab
from bench.support.lab.healthy import HEALTHY
from bench.support.lab.rows import BY_NAME
from controlplane.rest_client import Rest
from simulator.tokenizer import Words, train_tokenizer

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), window_seconds=10, interval_seconds=2) as made:
        yield made


@pytest.fixture(scope="module")
def drill(made: Lab) -> Iterator[Drill]:
    with Clients(made.gateway_url, made.keys, Words(train_tokenizer())) as clients:
        clients.start(HEALTHY)
        yield Drill(made, clients, say=lambda _: None, measure_seconds=0)


def run(drill: Drill, name: str) -> Result:
    result = drill.run(BY_NAME[name])
    assert result.problem == "", result
    assert result.found_seconds is not None
    assert result.subject == BY_NAME[name].subject
    assert result.cleared_seconds is not None
    return result


def test_a_noisy_tenant_is_found_limited_and_forgotten(made: Lab, drill: Drill) -> None:
    result = run(drill, "noisy_neighbour")
    assert result.lever == "tpm_limit"
    # The fleet is as it was: the stranger is gone, and with it its limit.
    assert "noisy" not in {row["name"] for row in made.rest.get("/tenants")["items"]}


def test_a_broken_gpu_is_found_its_node_cordoned_and_put_back(made: Lab, drill: Drill) -> None:
    run(drill, "hardware")
    cordoned = [event for event in audit(made.rest) if "n2" in event]
    assert any("cordon" in event for event in cordoned)
    assert not any(row["cordoned"] for row in made.rest.get("/nodes")["items"])


def test_no_detector_is_blind_in_the_lab(made: Lab, drill: Drill) -> None:
    deadline = time.monotonic() + 20
    while made.rest.get("/diagnosis")["looked_at"] is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert blind(made.rest) == {}


def audit(rest: Rest) -> list[str]:
    return [str(entry) for entry in rest.get("/audit", limit=100)["items"]]
