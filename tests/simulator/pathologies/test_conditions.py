"""What each condition does to an engine, and that nothing of it is left when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.start_phases import of_log
from simulator.gpu.drive import EngineLoad, running_requests
from simulator.gpu.load import Load
from simulator.grammars import Grammars
from simulator.metrics import EngineMetrics
from simulator.pathologies.conditions import (
    Condition,
    Conditions,
    FewFiles,
    IgnoresCancel,
    KvLeak,
    KvOverstated,
    SlowGrammars,
)
from simulator.pathologies.engine import EngineConditions
from simulator.pathologies.files import FileLimit
from simulator.pathologies.front_end import FrontEnd
from simulator.pathologies.parallel import parallel
from simulator.scheduler import BLOCK_TOKENS, Limits, Scheduler, Sequence, StepCost
from tests.services import Process, wait_for
from tests.simulator.conftest import MODEL, Engine, StartEngine

BLOCKS = 100
LIMITS = Limits(
    kv_capacity_tokens=BLOCKS * BLOCK_TOKENS, max_num_seqs=16, max_num_batched_tokens=512, max_model_len_tokens=512
)


def scheduler_with(sequences: int) -> Scheduler:
    scheduler = Scheduler(LIMITS, StepCost())
    for number in range(sequences):
        scheduler.submit(Sequence(str(number), 100, 20, 0.0))
    return scheduler


def held_blocks(scheduler: Scheduler) -> int:
    return scheduler.free_blocks + scheduler.withheld_blocks + sum(each.blocks for each in scheduler.running)


@given(shares=st.lists(st.floats(0, 0.95), min_size=1, max_size=12), sequences=st.integers(0, 12))
def test_no_block_is_lost_or_made_by_a_leak(shares: list[float], sequences: int) -> None:
    scheduler, now = scheduler_with(sequences), 0.0
    for share in shares:
        scheduler.withhold(share)
        assert held_blocks(scheduler) == BLOCKS
        if (step := scheduler.plan(now)) is not None:
            now += step.duration_seconds
            scheduler.complete(step, now)
        assert held_blocks(scheduler) == BLOCKS
    scheduler.withhold(0)
    assert scheduler.withheld_blocks == 0


def test_a_leak_takes_what_is_free_now_and_the_rest_as_it_is_given_back() -> None:
    scheduler, now = scheduler_with(13), 0.0
    step = scheduler.plan(now)
    assert step is not None
    held = sum(each.blocks for each in scheduler.running)
    scheduler.withhold(0.95)
    assert scheduler.withheld_blocks == BLOCKS - held < 95
    for sequence in list(scheduler.running):
        scheduler.abort(sequence)
    assert scheduler.withheld_blocks == 95


def conditions_of(metrics: EngineMetrics, grammars: Grammars) -> EngineConditions:
    return EngineConditions(metrics, grammars, None)


@pytest.mark.parametrize(
    "condition", [KvLeak(0.5), KvOverstated(3), IgnoresCancel(), SlowGrammars(3), FewFiles(50)], ids=lambda c: type(c)
)
def test_a_condition_that_ends_leaves_nothing_behind(condition: Condition) -> None:
    metrics, grammars = EngineMetrics("m", scheduler_with(0)), Grammars(0.5)
    conditions = conditions_of(metrics, grammars)

    def seen() -> tuple[Any, ...]:
        return (
            metrics.scheduler.free_blocks, re.findall(r'kv_cache_size_tokens="\d+"', metrics.page().decode()),
            conditions.heeds_cancel, grammars.compile_seconds, resource.getrlimit(resource.RLIMIT_NOFILE),
        )  # fmt: skip

    before = seen()
    conditions.hold([condition])
    assert seen() != before
    conditions.hold([condition])
    conditions.hold([])
    assert seen() == before


def test_an_overstated_capacity_is_told_and_not_there() -> None:
    metrics = EngineMetrics("m", scheduler_with(0))
    conditions_of(metrics, Grammars(0)).hold([KvOverstated(2.5)])
    assert f'kv_cache_size_tokens="{BLOCKS * BLOCK_TOKENS * 5 // 2}"' in metrics.page().decode()
    assert metrics.scheduler.limits.capacity_blocks == BLOCKS


def test_slow_grammars_forget_what_was_compiled() -> None:
    grammars = Grammars(0)
    conditions = conditions_of(EngineMetrics("m", scheduler_with(0)), grammars)
    assert grammars.wait_seconds(b"a", 1.0) == 0
    conditions.hold([SlowGrammars(3)])
    assert grammars.wait_seconds(b"a", 1.0) == 3
    assert grammars.wait_seconds(b"a", 5.0) == 0
    conditions.hold([])
    assert grammars.wait_seconds(b"b", 5.0) == 0


def test_few_files_leave_room_for_some_and_no_more() -> None:
    limit, before = FileLimit(), resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    try:
        limit.hold(5)
        with contextlib.suppress(OSError):
            while len(opened) < 40:
                opened.append(os.dup(0))
        # The limit is one of numbers: holes among those of open files count as room, too.
        assert 1 <= len(opened) < 20
    finally:
        limit.hold(None)
        for each in opened:
            os.close(each)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


async def emptied(front_end: FrontEnd) -> None:
    empty = asyncio.Event()
    front_end.hand_on(empty.set)
    await empty.wait()


async def test_a_bound_front_end_hands_on_in_order_and_uses_the_time_that_it_takes() -> None:
    front_end, done = FrontEnd(), list[int]()
    front_end.bind(0.004)
    begun = time.thread_time()
    for number in range(10):
        front_end.hand_on(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == []
    await emptied(front_end)
    assert done == list(range(10))
    assert time.thread_time() - begun >= 0.04


async def test_more_api_servers_take_their_part_of_the_work() -> None:
    def spent(servers: int) -> Any:
        async def run() -> float:
            front_end = FrontEnd(servers)
            front_end.bind(0.008)
            begun = time.thread_time()
            for _ in range(6):
                front_end.hand_on(lambda: None)
            await emptied(front_end)
            return time.thread_time() - begun

        return run()

    assert await spent(4) < await spent(1) / 2


async def test_what_waits_in_a_front_end_leaves_at_once_when_it_is_bound_no_more() -> None:
    front_end, done = FrontEnd(), list[int]()
    front_end.bind(10.0)
    front_end.hand_on(lambda: done.append(1))
    front_end.bind(0)
    assert done == [1]
    front_end.hand_on(lambda: done.append(2))
    assert done == [1, 2]


def test_tensor_parallelism_pays_over_nvlink_and_not_over_pcie() -> None:
    alone, nvlink, pcie = (
        each.step_seconds(2000, 16)
        for each in (StepCost(), parallel(StepCost(), 2, "nvlink"), parallel(StepCost(), 2, "pcie"))
    )
    assert nvlink < 0.65 * alone
    assert pcie > alone


def set_conditions(engine: Engine, *conditions: dict[str, Any]) -> int:
    body = json.dumps({"conditions": conditions}).encode()
    try:
        with urllib.request.urlopen(f"{engine.url}/simulator/conditions", body, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def ask_and_leave(engine: Engine) -> None:
    body = {"prompt": "hello", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with urllib.request.urlopen(f"{engine.url}/v1/completions", json.dumps(body).encode(), timeout=10) as answer:
        answer.readline()


def test_an_engine_that_ignores_cancels_makes_answers_for_nobody(start_engine: StartEngine) -> None:
    engine = start_engine("--speed", "4", "--conditions", json.dumps({"conditions": [{"kind": "ignores_cancel"}]}))
    running = "vllm:num_requests_running"
    ask_and_leave(engine)
    engine.wait_for_sample("vllm:generation_tokens_total", 400)
    engine.wait_for_sample(running, 0)
    assert engine.sample("vllm:request_success_total", finished_reason="length") == 1
    assert set_conditions(engine) == 200
    ask_and_leave(engine)
    engine.wait_for_sample(running, 0)
    assert engine.sample("vllm:generation_tokens_total") < 700


def test_an_answer_runs_until_its_api_process_has_passed_it_on(start_engine: StartEngine) -> None:
    engine = start_engine("--speed", "4")
    assert set_conditions(engine, {"kind": "front_end_bound", "token_seconds": 1.0}) == 200

    def page() -> tuple[str, bytes]:
        with urllib.request.urlopen(f"{engine.url}/metrics", timeout=5) as answer:
            return answer.headers["x-simulated-core-running"], answer.read()

    def core_is_done_and_the_page_not() -> bool:
        core, text = page()
        return core == "0" and running_requests(text) == 1

    body = json.dumps({"prompt": "hello", "max_tokens": 2, "ignore_eos": True}).encode()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: urllib.request.urlopen(f"{engine.url}/v1/completions", body, timeout=20).read())
        wait_for(core_is_done_and_the_page_not, 10, "the answer to wait for its API process")
        assert EngineLoad(engine.url).step(1.0) == Load(0)
        assert asked.result()
    assert page()[0] == "0"
    engine.wait_for_sample("vllm:num_requests_running", 0)


def test_a_leak_shows_as_use_of_the_cache(start_engine: StartEngine) -> None:
    engine = start_engine()
    assert set_conditions(engine, {"kind": "kv_leak", "share": 0.5}) == 200
    assert engine.sample("vllm:kv_cache_usage_perc") == 0.5
    assert set_conditions(engine) == 200
    assert engine.sample("vllm:kv_cache_usage_perc") == 0


def test_conditions_that_cannot_be_are_refused(start_engine: StartEngine) -> None:
    engine = start_engine()
    leak = {"kind": "kv_leak", "share": 0.5}
    assert set_conditions(engine, leak, leak) == 400
    assert set_conditions(engine, {"kind": "kv_leak", "share": 2}) == 400
    assert set_conditions(engine, {"kind": "gremlins"}) == 400
    assert set_conditions(start_engine("--speed", "instant"), leak) == 400


def test_a_fragmented_engine_dies_as_pytorch_does_and_an_eager_one_lives(tmp_path: Path) -> None:
    def run(*options: str) -> tuple[Process, Path]:
        log = tmp_path / f"engine{len(options)}.log"
        argv = [sys.executable, "-m", "simulator.engine", "--port", "0", "--model", MODEL, "--out-of-memory-seconds"]
        return Process([*argv, "0.2", *options], log=log), log

    (dying, log), (eager, eager_log) = run(), run("--enforce-eager")
    with dying, eager:
        wait_for(lambda: "torch.OutOfMemoryError: CUDA out of memory" in log.read_text(), 20, "the allocation to fail")
        wait_for(lambda: "on http://" in eager_log.read_text(), 20, "the eager engine to serve")
        assert "OutOfMemory" not in eager_log.read_text()


def test_a_slow_start_tells_its_phases_as_agents_read_them(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    argv = [sys.executable, "-m", "simulator.engine", "--port", "0", "--model", MODEL, "--start-seconds", "0.2"]
    with Process(argv, log=log):
        wait_for(lambda: "on http://" in log.read_text(), 20, "the engine to serve")
    phases = of_log(log.read_bytes())
    assert phases["load_weights"] == 120
    assert phases["torch_compile"] == 50
    assert phases["init_engine"] == 200


def test_the_message_says_which_conditions_there_are() -> None:
    with pytest.raises(msgspec.ValidationError, match="Invalid value"):
        msgspec.json.decode(b'{"conditions": [{"kind": "none"}]}', type=Conditions)
