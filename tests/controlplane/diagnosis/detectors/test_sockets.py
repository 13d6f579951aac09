"""Row 15: file descriptors and ports that end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding
from controlplane.diagnosis.detectors.sockets import Sockets
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import gauge

API: Any = {"engine": "e1", "node": "n1", "role": "api"}
CORE: Any = {"engine": "e1", "node": "n1", "role": "core"}
NODE: Any = {"node": "n1"}
GATEWAY: Any = {"gateway": "g1"}
DETECTOR = Sockets()


def series(
    files: float = 100, host: float = 10_000, ports: float = 1_000, gateway: float = 500, time_wait: float = 10,
    close_wait: float = 0,
) -> list[Any]:  # fmt: skip
    return [
        gauge("headworks_engine_process_open_fds", files, **API),
        gauge("headworks_engine_process_fd_limit", 1024, **API),
        gauge("headworks_engine_process_open_fds", 40, **CORE),
        gauge("headworks_engine_process_fd_limit", 1_048_576, **CORE),
        gauge("headworks_engine_connections", files - 24, state="established", engine="e1", node="n1"),
        gauge("headworks_engine_connections", time_wait, state="time_wait", engine="e1", node="n1"),
        gauge("headworks_engine_connections", close_wait, state="close_wait", engine="e1", node="n1"),
        gauge("headworks_host_file_descriptors_used", host, **NODE),
        gauge("headworks_host_file_descriptors_limit", 100_000, **NODE),
        gauge("headworks_host_ephemeral_ports_used", ports, **NODE),
        gauge("headworks_host_ephemeral_ports_limit", 28_232, **NODE),
        gauge("headworks_gateway_open_fds", gateway, **GATEWAY),
        gauge("headworks_gateway_fd_limit", 10_000, **GATEWAY),
        gauge("headworks_gateway_requests_in_flight", gateway / 2, **GATEWAY),
    ]


def found(**given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), helpers.fleet())


def test_a_fleet_with_room_is_well():
    assert not found()


def test_an_engine_of_nearly_as_many_files_as_it_may_have_open_is_found():
    (finding,) = found(files=900)
    assert (finding.subject, finding.pools, finding.tenants) == ("engine/e1", ("chat",), ("acme",))
    evidence = {part.name: part for part in finding.evidence}
    assert evidence["files_used"].value == pytest.approx(900 / 1024)
    assert (evidence["open_files"].value, evidence["open_files"].limit) == (900, 1024)
    (surer,) = found(files=1000)
    assert surer.confidence_permille > finding.confidence_permille


def test_the_usual_limit_of_1024_ends_at_its_own_connections():
    (finding,) = found(files=1000)
    levers = {lever.key: lever for lever in finding.levers}
    assert "LimitNOFILE=65536" in str(levers["file_limit"].advice)
    # 60 % of 1,024, less the 24 that are no connections, for one engine.
    assert levers["fewer_at_once"].edits[0].changes == {"max_concurrency": 590}


def test_what_holds_at_once_goes_first_unless_it_refuses_most():
    """A cap needs no restart; one of 641 would refuse more than half of 1,500."""
    assert [lever.key for lever in found(files=1000)[0].levers] == ["fewer_at_once", "file_limit"]
    under_way = gauge("headworks_gateway_pool_requests", 1500, pool="chat", gateway="g1")
    (finding,) = helpers.judged(DETECTOR, [*series(files=1000), under_way], helpers.fleet())
    assert [lever.key for lever in finding.levers] == ["file_limit", "fewer_at_once"]


def test_connections_that_the_engine_does_not_close_are_told():
    (finding,) = found(files=900, close_wait=400)
    assert {part.name: part for part in finding.evidence}["not_closed_by_the_engine"].value == 400


def test_a_node_without_ports_and_without_keep_alive_is_told_both():
    (finding,) = found(ports=27_000, time_wait=20_000)
    assert finding.subject == "node/n1"
    assert [lever.key for lever in finding.levers] == ["keep_alive", "more_ports"]
    (kept,) = found(ports=27_000)
    assert [lever.key for lever in kept.levers] == ["more_ports"]


def test_a_node_without_file_descriptors_is_found():
    (finding,) = found(host=90_000)
    assert [lever.key for lever in finding.levers] == ["host_file_limit"]
    assert "fs.file-max=200000" in str(finding.levers[0].advice)


def test_a_gateway_near_its_limit_is_found_with_what_a_stream_takes():
    (finding,) = found(gateway=8_500)
    assert finding.subject == "gateway/g1"
    assert {part.name: part for part in finding.evidence}["files_a_stream"].value == pytest.approx(2.0)
    assert [lever.key for lever in finding.levers] == ["file_limit", "another_gateway"]


def test_what_has_no_limit_is_not_near_it():
    unlimited = [each for each in series(files=900) if "limit" not in each.labels["__name__"]]
    assert not helpers.judged(DETECTOR, unlimited, helpers.fleet())


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    kit.dry_run(found(files=1000)[0])


@given(used=st.floats(0, 1), more=st.floats(0, 1))
def test_more_use_never_clears_it(used: float, more: float):
    def judged(used: float) -> list[Finding]:
        queries = {"engine_share": [({"engine": "e1"}, used)], "ports_share": [(NODE, used)],
                   "gateway_share": [(GATEWAY, used)]}  # fmt: skip
        return list(DETECTOR.judge(helpers.readings(DETECTOR, **queries), helpers.fleet()))

    before, after = judged(used), judged(used + more)
    assert {each.subject for each in before} <= {each.subject for each in after}
