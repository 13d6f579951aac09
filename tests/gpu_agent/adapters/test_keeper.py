"""Adapters of a simulated engine, kept as its pool desires them."""

from __future__ import annotations

import json
import urllib.request

import pytest

from gpu_agent.adapters.keeper import AdapterKeeper
from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.look import Look
from gpu_agent.policy import EnginePolicy, NodePolicy
from tests.gpu_agent.acts.works import node_engine, tools, until
from wire.messages import EngineReport

ALLOWED = ["load_lora", "unload_lora"]
UP = Look(EngineReport("e1", "up"), 0)
DOWN = Look(EngineReport("e1", "down"), 0)


class Kept:
    """`now`: the clock's seconds."""

    def __init__(self, folder, engine, allow=ALLOWED):
        self.folder, self.engine, self.now = folder, engine, 0.0
        self.adapters = folder / "adapters"
        for name in ("support", "sales"):
            (self.adapters / name).mkdir(parents=True, exist_ok=True)
        policy = EnginePolicy(allow=allow, lora_folder=str(self.adapters))
        self.policy = NodePolicy(engines={"e1": policy})
        self.begin()

    def begin(self):
        """A new run of the agent."""
        used = tools(keys=EngineKeys(self.policy))
        self.keeper = AdapterKeeper(self.folder / "adapters.json", self.policy, lambda: used, clock=lambda: self.now)

    def of(self, *names):
        return {name: str(self.adapters / name) for name in names}

    async def look(self, *names, look=UP, later=0.0, desired=None):
        """A look, and what came of it."""
        self.now += later
        engine = node_engine(self.engine.url, adapters=self.of(*names) if desired is None else desired)
        self.keeper.looked("e1", engine, look)
        known = self.keeper._known.get("e1")
        if known is not None and known.task is not None:
            await until(lambda: known.task is None)
        return self.keeper.add_to(look.report)

    def loaded(self):
        with urllib.request.urlopen(f"{self.engine.url}/v1/models", timeout=5) as answer:
            return {card["id"] for card in json.load(answer)["data"] if card.get("parent")}

    def post(self, path, **body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.engine.url}{path}", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request, timeout=5).close()


@pytest.fixture
def lora_engine(start_engine):
    return start_engine("--runtime-lora", "--model", "llama")


@pytest.fixture
def kept(tmp_path, lora_engine):
    return Kept(tmp_path, lora_engine)


async def test_what_lacks_is_loaded_and_told_and_what_is_no_longer_desired_unloaded(kept):
    report = await kept.look("support", "sales")
    assert kept.loaded() == {"support", "sales"}
    assert (report.adapters, report.adapter_problems) == (kept.of("support", "sales"), {})
    # A change is taken up at the next look, without a wait.
    assert (await kept.look("support")).adapters == kept.of("support")
    assert kept.loaded() == {"support"}


async def test_after_a_restart_of_the_engine_they_are_loaded_again(kept):
    await kept.look("support")
    kept.post("/v1/unload_lora_adapter", lora_name="support")
    assert (await kept.look("support", look=DOWN)).adapters == {}
    assert (await kept.look("support")).adapters == kept.of("support")


async def test_after_a_restart_of_the_agent_it_still_knows_which_are_its_own(kept):
    kept.post("/v1/load_lora_adapter", lora_name="foreign", lora_path="/elsewhere")
    await kept.look("support")
    kept.begin()
    await kept.look()
    assert kept.loaded() == {"foreign"}


async def test_one_that_somebody_unloads_is_loaded_again_in_time(kept):
    await kept.look("support")
    kept.post("/v1/unload_lora_adapter", lora_name="support")
    await kept.look("support", later=1)
    assert kept.loaded() == set()
    await kept.look("support", later=30)
    assert kept.loaded() == {"support"}


async def test_a_failure_is_told_and_tried_again_more_and_more_rarely(kept):
    outside = {"support": "/nowhere/support"}
    report = await kept.look(desired=outside)
    assert report.adapters == {}
    assert report.adapter_problems["support"].startswith("path_not_allowed: /nowhere/support cannot be found")
    known = kept.keeper._known["e1"]
    waits: list[float] = []
    for _ in range(8):
        await kept.look(desired=outside, later=waits[-1] if waits else 10)
        waits.append(known.due_seconds - kept.now)
    assert waits[:3] == [20, 40, 80]
    assert waits[-1] == 600
    # One that fails keeps no other from being loaded.
    report = await kept.look(desired=outside | kept.of("sales"))
    assert (report.adapters.keys(), report.adapter_problems.keys()) == ({"sales"}, {"support"})


@pytest.mark.parametrize(("allow", "loads"), [([], set()), (["load_lora"], {"support"})])
async def test_what_the_policy_does_not_allow_is_not_done_and_told(tmp_path, lora_engine, allow, loads):
    kept = Kept(tmp_path, lora_engine, allow)
    report = await kept.look("support")
    assert kept.loaded() == loads
    assert report.adapter_problems == ({} if loads else {"support": "load_lora is not allowed by this node's policy"})
    await kept.look()
    assert kept.loaded() == loads


async def test_nothing_is_asked_of_an_engine_without_adapters(kept):
    assert await kept.look() == UP.report
    assert "e1" not in kept.keeper._known
