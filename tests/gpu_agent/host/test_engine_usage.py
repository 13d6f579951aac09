from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.host.engine_usage import EngineUsage, connection_samples
from gpu_agent.host.proc import Files, Stat
from gpu_agent.host.processes import EngineProcesses
from gpu_agent.host.sockets import PortSockets

CPU = "headworks_engine_process_cpu_seconds_total"


def engine(stats, role="api"):
    return EngineProcesses(stats, dict.fromkeys(stats, role), [], None)


def stat(cpu_seconds, started=1):
    return Stat("vllm", 1, cpu_seconds, 4, started, 1000)


def values(samples):
    return {
        (sample.name.removeprefix("headworks_engine_process_"), sample.labels["role"]): sample for sample in samples
    }


def test_processes_of_a_role_are_added_up():
    usage = EngineUsage(lambda _: None)
    processes = EngineProcesses({1: stat(2), 2: stat(3), 3: stat(50)}, {1: "api", 2: "api", 3: "core"}, [], None)
    found = {key: sample.value for key, sample in values(usage.samples({"e1": processes})).items()}
    assert found == {
        ("cpu_seconds_total", "api"): 5,
        ("resident_bytes", "api"): 2000,
        ("threads", "api"): 8,
        ("cpu_seconds_total", "core"): 50,
        ("resident_bytes", "core"): 1000,
        ("threads", "core"): 4,
    }


def test_open_files_are_those_of_the_process_nearest_to_its_limit():
    usage = EngineUsage({1: Files(900, 1000), 2: Files(5000, 100_000), 3: None}.get)
    found = values(usage.samples({"e1": engine({1: stat(0), 2: stat(0), 3: stat(0)})}))
    assert (found["open_fds", "api"].value, found["fd_limit", "api"].value) == (900, 1000)


@given(
    st.lists(
        st.dictionaries(st.integers(1, 4), st.tuples(st.integers(1, 3), st.floats(0, 100)), min_size=1),
        min_size=1,
        max_size=20,
    )
)
def test_processor_time_never_falls_while_processes_come_go_and_reuse_ids(looks):
    usage = EngineUsage(lambda _: None)
    total = 0.0
    for look in looks:
        (sample,) = (
            each
            for each in usage.samples({"e1": engine({pid: stat(cpu, started) for pid, (started, cpu) in look.items()})})
            if each.name == CPU
        )
        assert sample.value >= total
        total = sample.value


def test_an_engine_that_is_gone_has_no_series_and_begins_anew():
    usage = EngineUsage(lambda _: None)
    usage.samples({"e1": engine({1: stat(9)})})
    assert usage.samples({}) == []
    assert values(usage.samples({"e1": engine({2: stat(1)})}))["cpu_seconds_total", "api"].value == 1


def test_connections_of_every_state_are_told_and_none_where_nothing_listens():
    sockets = PortSockets()
    sockets.connections["established"] = 3
    assert connection_samples("e1", sockets) == []
    sockets.listening.add("7")
    found = {sample.labels["state"]: sample.value for sample in connection_samples("e1", sockets)}
    assert found == {"established": 3, "syn_recv": 0, "time_wait": 0, "close_wait": 0, "backlog": 0}
