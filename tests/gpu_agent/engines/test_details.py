from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import UNSET

from gpu_agent.engines.details import EngineDetails
from gpu_agent.engines.look import Look
from gpu_agent.policy import EnginePolicy, NodePolicy
from tests.wire.engine_pages.reading import page_of
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

UP = Look(EngineReport("e1", "up"), 0)
DOWN = Look(EngineReport("e1", "down"), 0)
LOG = b"INFO non-default args: {}\nINFO Loading weights took 2.50 seconds\n"


@pytest.fixture
def start(pages):
    """Details of engine `e1`; they are stopped in the end."""
    made: list[EngineDetails] = []

    def start(policy: EnginePolicy | None = None, words: list[str] | None = None, clock: list[float] | None = None):
        node = NodePolicy(engines={"e1": policy} if policy else {})
        made.append(
            EngineDetails(
                pages, node, lambda _: list(words) if words else None, clock=lambda: clock[0] if clock else 0.0
            )
        )
        return made[-1]

    yield start
    for details in made:
        details.stop()


def of_kind(engine, kind):
    return NodeEngine(engine.url, kind, "short", "llama")


async def until(holds):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():  # noqa: ASYNC110 - a reading that ends has no event
            await asyncio.sleep(0.005)


def paths(engine) -> list[str]:
    return [request.path for request in engine.requests]


async def test_an_engine_was_started_with_what_its_process_says(engine, start):
    details = start(words=["vllm", "serve", "llama", "--max-num-seqs", "64", "--api-key", "abc"])
    details.looked("e1", of_kind(engine, "vllm"), UP)
    await until(lambda: details.add_to(UP.report).arguments)
    assert details.add_to(UP.report).arguments == {
        "command": "vllm serve llama",
        "max_num_seqs": "64",
        "api_key": "***",
    }
    assert "/server_info" not in paths(engine), "vLLM's page about itself costs it seconds, and says no more"


async def test_where_the_process_is_not_known_vllm_says_it_in_development_mode(engine, start):
    config = {"scheduler_config": {"max_num_seqs": 64}, "model_config": {"hf_token": "abc"}}
    engine.pages["/server_info"] = (200, json.dumps({"vllm_config": config, "vllm_env": {"X": 1}}).encode())
    details = start()
    details.looked("e1", of_kind(engine, "vllm"), UP)
    await until(lambda: details.add_to(UP.report).arguments)
    assert details.add_to(UP.report).arguments == {
        "scheduler_config.max_num_seqs": "64",
        "model_config.hf_token": "***",
    }


@pytest.mark.parametrize(
    ("kind", "path", "page", "version", "arguments"),
    [
        ("sglang", "/server_info", {"version": "0.5.6", "tp_size": 2}, "0.5.6", {"version": "0.5.6", "tp_size": "2"}),
        ("sglang", "/get_server_info", {"version": "0.4.1"}, "0.4.1", {"version": "0.4.1"}),
        (
            "llamacpp",
            "/props",
            {"build_info": "b7000-abc", "total_slots": 4, "default_generation_settings": {}},
            "b7000-abc",
            {"build_info": "b7000-abc", "total_slots": "4"},
        ),
        (
            "tgi",
            "/info",
            {"version": "3.3.0", "max_total_tokens": 8},
            UNSET,
            {"version": "3.3.0", "max_total_tokens": "8"},
        ),
    ],
)
async def test_other_kinds_say_it_on_a_page_and_some_their_version(engine, start, kind, path, page, version, arguments):
    engine.pages = {path: (200, json.dumps(page).encode())}
    details = start()
    details.looked("e1", of_kind(engine, kind), UP)
    await until(lambda: details.add_to(UP.report).arguments)
    report = details.add_to(UP.report)
    assert (report.version, report.arguments) == (version, arguments)


async def test_a_version_that_a_look_has_read_stays(engine, start):
    engine.pages = {"/server_info": (200, b'{"version":"0.5.6"}')}
    details = start()
    details.looked("e1", of_kind(engine, "sglang"), UP)
    await until(lambda: details.add_to(UP.report).version == "0.5.6")
    assert details.add_to(EngineReport("e1", "up", version="0.5.7")).version == "0.5.7"


async def test_the_phases_of_a_start_come_from_the_log_that_the_policy_names(engine, start, tmp_path):
    log = tmp_path / "vllm.log"
    log.write_bytes(LOG)
    details = start(EnginePolicy(log_file=str(log)))
    vllm = of_kind(engine, "vllm")
    details.looked("e1", vllm, UP)
    await until(lambda: details.add_to(UP.report).start_phases_ms)
    assert details.add_to(UP.report).start_phases_ms == {"load_weights": 2500}
    (sample, ended) = details.samples("e1", vllm)
    assert (sample.name, sample.value) == ("headworks_engine_start_phase_seconds", 2.5)
    assert sample.labels == {"engine": "e1", "kind": "vllm", "model": "llama", "pool": "short", "phase": "load_weights"}
    assert (ended.name, ended.value) == ("headworks_engine_out_of_memory_exit", 0.0)


async def test_the_log_tells_of_a_run_that_ended_for_want_of_memory(engine, start, tmp_path):
    log = tmp_path / "vllm.log"
    log.write_bytes(b"CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0: of which 15.00 GiB is free\n" + LOG)
    details = start(EnginePolicy(log_file=str(log)))
    vllm = of_kind(engine, "vllm")
    details.looked("e1", vllm, UP)
    await until(lambda: details.add_to(UP.report).start_phases_ms)
    told = {
        (sample.name, sample.labels.get("part", "")): sample.value
        for sample in details.samples("e1", vllm)
        if "memory" in sample.name
    }
    assert told == {
        ("headworks_engine_out_of_memory_exit", ""): 1.0,
        ("headworks_engine_out_of_memory_bytes", "asked"): 4 * 2**30,
        ("headworks_engine_out_of_memory_bytes", "free"): 15 * 2**30,
    }


async def test_the_phases_of_sglangs_start_stand_on_its_metrics_page(engine, start):
    engine.pages = {"/metrics": (200, page_of("sglang"))}
    details = start()
    details.looked("e1", of_kind(engine, "sglang"), UP)
    await until(lambda: details.add_to(UP.report).start_phases_ms)
    assert details.add_to(UP.report).start_phases_ms["load_weight"] == 10_500


async def test_model_files_have_a_size_and_a_place(engine, start, tmp_path):
    (tmp_path / "weights").write_bytes(b"x" * 500)
    details = start(EnginePolicy(model_path=str(tmp_path)))
    vllm = of_kind(engine, "vllm")
    details.looked("e1", vllm, UP)
    await until(lambda: details.add_to(UP.report).model_bytes is not UNSET)
    report = details.add_to(UP.report)
    assert (report.model_path, report.model_bytes) == (str(tmp_path), 500)
    (sample,) = details.samples("e1", vllm)
    assert (sample.name, sample.value) == ("headworks_engine_model_bytes", 500)
    assert sample.labels.keys() == {"engine", "kind", "model", "pool", "filesystem", "place"}


async def test_what_decides_a_prompt_is_told_and_not_where_the_engine_has_one_of_its_own(engine, start, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    (tmp_path / "chat_template.jinja").write_bytes(b"{{ messages }}")
    details = start(EnginePolicy(model_path=str(tmp_path)), ["vllm", "--chat-template", "/etc/own.jinja"])
    details.looked("e1", of_kind(engine, "vllm"), UP)
    await until(lambda: details.add_to(UP.report).digests)
    assert details.add_to(UP.report).digests == {"tokenizer": hashlib.sha256(b"{}").hexdigest()}


async def test_the_log_of_triton_tells_which_vllm_is_in_it(engine, start, tmp_path):
    (tmp_path / "log").write_bytes(b"NVIDIA Release 25.09 (build 1)\nInitializing a V1 LLM engine (v0.11.2) with x\n")
    details = start(EnginePolicy(log_file=str(tmp_path / "log")))
    details.looked("e1", of_kind(engine, "triton"), UP)
    await until(lambda: details.add_to(UP.report).versions)
    assert details.add_to(UP.report).versions == {"vllm": "0.11.2", "triton_release": "25.09"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"data": [{"id": "a", "max_model_len": 1}, {"id": "llama", "max_model_len": 8192}]}', 8192),
        (b'{"data": [{"id": "llama", "max_model_len": -1}]}', UNSET),
        (b'{"data": [{"id": "llama"}]}', UNSET),
        (b'{"data": 7}', UNSET),
    ],
)
async def test_how_long_a_sequence_may_be_stands_in_the_list_of_models(engine, start, body, expected):
    engine.pages["/v1/models"] = (200, body)
    details = start(words=["vllm"])
    details.looked("e1", of_kind(engine, "vllm"), UP)
    await until(lambda: details.reads_none("e1"))
    assert details.add_to(UP.report).max_length_tokens == expected


async def test_what_cannot_be_read_is_absent_and_holds_up_nothing_else(engine, start, tmp_path, caplog):
    details = start(EnginePolicy(log_file=str(tmp_path / "none.log"), model_path=str(tmp_path / "none")), ["vllm"])
    vllm = of_kind(engine, "vllm")
    details.looked("e1", vllm, UP)
    await until(lambda: details.add_to(UP.report).arguments)
    await until(lambda: len(caplog.records) >= 2)
    report = details.add_to(UP.report)
    assert (report.start_phases_ms, report.model_bytes, details.samples("e1", vllm)) == ({}, UNSET, [])


@pytest.fixture
def fifo(tmp_path) -> Iterator[str]:
    """A file whose reading does not come back, as of a network disk whose server is away, until the test ends."""
    path = tmp_path / "hung"
    os.mkfifo(path)
    yield str(path)
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


async def test_a_disk_that_hangs_holds_up_neither_looks_nor_what_else_is_read(engine, start, fifo):
    details = start(EnginePolicy(log_file=fifo), ["vllm", "--seed", "1"])
    vllm = of_kind(engine, "vllm")
    details.looked("e1", vllm, UP)
    await until(lambda: details.add_to(UP.report).arguments == {"command": "vllm", "seed": "1"})
    assert not details.reads_none("e1"), "the log does not come back"
    details.looked("e1", vllm, DOWN)
    assert details.add_to(UP.report).start_phases_ms == {}


async def test_it_is_read_again_after_a_restart_and_after_an_hour_and_not_between(engine, start):
    engine.pages = {"/props": (200, b'{"build_info":"b1"}')}
    clock = [0.0]
    details = start(clock=clock)
    llamacpp = of_kind(engine, "llamacpp")

    async def looks(look: Look, expected: int) -> None:
        details.looked("e1", llamacpp, look)
        await until(lambda: len(engine.requests) >= expected)
        # Only when one has ended the next begins.
        await until(lambda: details.reads_none("e1"))
        assert paths(engine) == ["/props"] * expected

    await looks(UP, 1)
    await looks(UP, 1)
    await looks(DOWN, 1)
    await looks(UP, 2)
    await looks(Look(EngineReport("e1", "up"), 0, restarts=1), 3)
    await looks(Look(EngineReport("e1", "up"), 0, restarts=1), 3)
    clock[0] = 3601
    await looks(Look(EngineReport("e1", "up"), 0, restarts=1), 4)


async def test_of_an_engine_that_is_gone_or_was_never_seen_nothing_is_known(engine, start):
    details = start(words=["vllm", "--seed", "1"])
    vllm = of_kind(engine, "vllm")
    assert details.add_to(UP.report) == UP.report
    details.looked("e1", vllm, UP)
    await until(lambda: details.add_to(UP.report).arguments)
    details.keep_only(())
    assert details.add_to(UP.report) == UP.report
    assert details.samples("e1", vllm) == []


async def test_another_engine_under_the_name_is_read_anew_and_one_that_is_cordoned_is_not(engine, start):
    engine.pages = {"/props": (200, b'{"build_info":"b1"}')}
    details = start()
    llamacpp = of_kind(engine, "llamacpp")
    details.looked("e1", llamacpp, UP)
    await until(lambda: details.reads_none("e1"))
    details.looked("e1", msgspec.structs.replace(llamacpp, cordoned=True), UP)
    assert details.reads_none("e1")
    details.looked("e1", msgspec.structs.replace(llamacpp, pool="long"), UP)
    assert details.add_to(UP.report).arguments == {}
    await until(lambda: details.add_to(UP.report).arguments)
    assert paths(engine) == ["/props"] * 2


async def test_a_process_that_is_found_later_or_is_another_is_read_then(engine, start):
    words: list[str] = []
    details = start(words=words)
    vllm = of_kind(engine, "vllm")
    details.looked("e1", vllm, UP)
    await until(lambda: details.reads_none("e1"))
    assert details.add_to(UP.report).arguments == {}
    for seed in ("1", "2"):
        words[:] = ["vllm", "--seed", seed]
        details.looked("e1", vllm, UP)
        await until(lambda: details.reads_none("e1"))
        assert details.add_to(UP.report).arguments == {"command": "vllm", "seed": seed}
    words.clear()
    details.looked("e1", vllm, UP)
    assert details.reads_none("e1"), "one that is not found any more was started as it was"


async def test_what_its_configuration_file_says_counts_unless_its_command_line_says_otherwise(engine, start, tmp_path):
    file = tmp_path / "llama.yaml"
    file.write_text("# of the node\nmax-num-seqs: 64 # few\nkv-cache-dtype: 'fp8'\nhf-token: hf_abcdefghijk\nseed: 1\n")
    words = ["vllm", "serve", "llama", "--config", str(file), "--seed", "2"]
    details = start(EnginePolicy(config_file=str(file)), words)
    details.looked("e1", of_kind(engine, "vllm"), UP)
    await until(lambda: details.reads_none("e1"))
    told = details.add_to(UP.report).arguments
    assert (told["max_num_seqs"], told["kv_cache_dtype"], told["seed"], told["hf_token"]) == ("64", "fp8", "2", "***")
    desired = msgspec.structs.replace(of_kind(engine, "vllm"), arguments={"max-num-seqs": 32, "seed": 2})
    (differs,) = [
        each for each in details.samples("e1", desired) if each.name == "headworks_engine_arguments_differing"
    ]
    assert differs.value == 1


async def test_a_file_that_was_written_since_the_start_says_nothing_of_it(engine, start, tmp_path):
    file = tmp_path / "llama.yaml"
    file.write_text("max-num-seqs: 64\n")
    details = start(EnginePolicy(config_file=str(file)), ["vllm", "serve", "--seed", "2"])
    started = msgspec.structs.replace(UP.report, started_at_ms=int(file.stat().st_mtime * 1000) - 5000)
    details.looked("e1", of_kind(engine, "vllm"), Look(started, 0))
    await until(lambda: details.reads_none("e1"))
    assert "max_num_seqs" not in details.add_to(UP.report).arguments
