"""The config stream of a real web process: what a target is told, and when it is let go."""

from __future__ import annotations

import http.client
import threading
from typing import Any

import pytest

from controlplane.rest_client import RestError
from tests.controlplane.configs.live import Live, LiveStream
from tests.services import wait_for
from wire.messages import PatchEvent, SnapshotEvent
from wire.snapshot_checks import decode_snapshot

_names = iter(range(10_000))


def fresh(kind: str) -> str:
    return f"{kind}-{next(_names)}"


def refusal(live: Live, token: str, have: int | str = 0, **headers: str) -> tuple[int, str]:
    stream = LiveStream(live.port, token, have, headers)
    return stream.status, str(stream.body["code"])


def change(live: Live, name: str) -> int:
    """Make a tenant and wait for its revision."""
    answer = live.rest.post("/tenants", {"name": name}, wait="applied", timeout=0)
    wait_for(lambda: revision_of(live, answer["change_id"]), 10, "the revision")
    return revision_of(live, answer["change_id"])


def revision_of(live: Live, change_id: str) -> int:
    for item in live.rest.get("/revisions", limit=20)["items"]:
        shown = live.rest.get(f"/revisions/{item['number']}")
        if any(entry["change_id"] == change_id for entry in shown["audit"]):
            return int(item["number"])
    return 0


def test_a_target_gets_the_whole_and_then_patches(live: Live) -> None:
    target = live.enrol("gateway", fresh("gw"))
    stream = target.stream()
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["cache-control"] == "no-store"
    first = stream.next()
    assert isinstance(first, SnapshotEvent)
    decode_snapshot(first.content)
    target.ack(stream.held)
    name = fresh("tenant")
    live.rest.post("/tenants", {"name": name, "tpm_limit": 7})
    second = stream.next()
    assert isinstance(second, PatchEvent)
    assert second.from_revision == first.revision
    assert stream.held.content["tenants"][name]["tpm_limit"] == 7
    stream.close()


def test_a_slice_that_is_held_already_is_not_sent_again(live: Live) -> None:
    target = live.enrol("gateway", fresh("gw"))
    stream = target.stream()
    stream.next()
    target.ack(stream.held)
    stream.close()
    again = target.stream(stream.held.revision)
    again.hold(stream.held)
    revision = change(live, fresh("tenant"))
    event = again.next()
    assert isinstance(event, PatchEvent)
    assert (event.from_revision, event.revision) == (stream.held.revision, revision)
    again.close()


def test_a_node_hears_nothing_of_what_does_not_concern_it(live: Live) -> None:
    name = fresh("node")
    node = live.enrol("node", name)
    stream = node.stream()
    stream.next()
    node.ack(stream.held)
    change(live, fresh("tenant"))
    live.rest.post(f"/nodes/{name}/cordon")
    event = stream.next()
    assert isinstance(event, PatchEvent)
    assert event.patch == {"node": {"cordoned": True, "cordon_reason": "because of a test"}}
    assert set(stream.held.content) == {"kind", "schema", "node", "engines", "acts"}
    stream.close()


def test_a_number_that_stands_for_another_slice_gets_the_whole(live: Live) -> None:
    """As after a restored backup, which counts the numbers anew that it lost."""
    target = live.enrol("gateway", fresh("gw"))
    stream = target.stream()
    stream.next()
    target.ack(stream.held)
    stream.close()
    held = stream.held
    lost = target.stream(f"{held.revision}&hash={'0' * 64}")
    assert isinstance(lost.next(), SnapshotEvent)
    lost.close()
    kept = target.stream(f"{held.revision}&hash={held.hash}")
    kept.hold(held)
    change(live, fresh("tenant"))
    assert isinstance(kept.next(), PatchEvent)
    kept.close()


def test_who_sends_no_hash_is_found_out_by_its_ack(live: Live) -> None:
    target = live.enrol("gateway", fresh("gw"))
    first = target.stream()
    first.next()
    target.ack(first.held)
    first.close()
    stream = target.stream(first.held.revision)
    with pytest.raises(RestError, match="wrong_hash"):
        target.rest.post("/config/ack", {"revision": first.held.revision, "hash": "0" * 64, "applied_at": 1})
    event = stream.next()
    assert isinstance(event, SnapshotEvent)
    assert event.hash == first.held.hash
    stream.close()


@pytest.mark.parametrize("have", [10**9, 10**15])
def test_a_revision_that_is_not_known_gets_the_whole(live: Live, have: int) -> None:
    stream = live.enrol("gateway", fresh("gw")).stream(have)
    assert isinstance(stream.next(), SnapshotEvent)
    stream.close()


def test_refusals_are_problems_with_a_name(live: Live) -> None:
    token = live.enrol("gateway", fresh("gw")).token
    for have in ("abc", "-1", "1.5", "%EF%BC%91", "9" * 40):
        assert refusal(live, token, have) == (400, "malformed"), have
    for digest in ("abc", "G" * 64, "A" * 64, "0" * 65):
        assert refusal(live, token, f"1&hash={digest}") == (400, "malformed"), digest
    assert refusal(live, "hwg-wrong") == (401, "unauthenticated")
    assert refusal(live, live.rest.token) == (401, "unauthenticated")
    assert refusal(live, token, **{"X-Headworks-Protocol": "99"}) == (426, "protocol_not_served")
    assert refusal(live, token, **{"X-Headworks-Protocol": "x"}) == (426, "protocol_not_served")


def test_only_get_opens_a_stream(live: Live) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    connection.request("POST", "/api/v1/config/stream")
    assert connection.getresponse().status == 405


def test_revoking_closes_the_stream_at_once(live: Live) -> None:
    name = fresh("gw")
    target = live.enrol("gateway", name)
    stream = target.stream()
    stream.next()
    (row,) = [row for row in live.rest.get("/targets", limit=1000)["items"] if row["name"] == name]
    live.rest.post(f"/targets/{row['id']}/revoke")
    # Long before a ping or the token's end would.
    while stream.next(5) is not None:
        pass
    assert refusal(live, target.token) == (403, "revoked")


def test_enrolling_again_closes_the_stream_of_the_process_before(live: Live) -> None:
    name = fresh("gw")
    before = live.enrol("gateway", name).stream()
    before.next()
    again = live.enrol("gateway", name)
    after = again.stream()
    assert isinstance(after.next(), SnapshotEvent)
    while before.next(5) is not None:
        pass
    again.ack(after.held)
    change(live, fresh("tenant"))
    assert after.next() is not None
    after.close()


def test_gateways_hear_how_many_they_are(live: Live) -> None:
    first, second = (live.enrol("gateway", fresh("gw")).stream() for _ in range(2))
    wait_for(lambda: first.live_gateways >= 2 and first.live_gateways == second.live_gateways, 10, "both counted")
    together = first.live_gateways
    second.close()
    # Streams of other tests may end meanwhile too.
    wait_for(lambda: first.live_gateways <= together - 1, 10, "one left")
    first.close()


def test_a_reader_that_acknowledges_late_misses_nothing(live: Live) -> None:
    target = live.enrol("gateway", fresh("gw"))
    stream = target.stream()
    stream.next()
    held = stream.held
    names = [fresh("tenant") for _ in range(3)]
    for name in names:
        revision = change(live, name)
    target.ack(held)
    # In one patch or several: what was not acknowledged for long is followed by the next push all the same.
    seen: set[str] = set()
    while stream.held.revision < revision:
        event = stream.next()
        assert isinstance(event, PatchEvent)
        seen |= set(event.patch["tenants"])
    assert seen >= set(names)
    stream.close()


def test_a_write_can_wait_until_all_targets_run_it(live: Live) -> None:
    for row in live.rest.get("/targets", limit=1000)["items"]:
        live.rest.post(f"/targets/{row['id']}/revoke")
    good, bad = (live.enrol("gateway", fresh("gw")) for _ in range(2))
    streams = [target.stream() for target in (good, bad)]
    for target, stream in zip((good, bad), streams, strict=True):
        stream.next()
        target.ack(stream.held)
    answers: dict[str, Any] = {}

    def write() -> None:
        answers.update(live.rest.post("/tenants", {"name": fresh("tenant")}, wait="applied", timeout=15))

    writer = threading.Thread(target=write)
    writer.start()
    for stream in streams:
        stream.next()
    good.ack(streams[0].held)
    problem = {"path": "/tenants", "rule": "test", "message": "no"}
    bad.rest.post("/config/ack", {"revision": streams[1].held.revision, "error": [problem]})
    writer.join()
    stands = answers["convergence"]
    assert (stands["targets"], stands["applied"], stands["pending"], stands["lost"]) == (2, 1, [], [])
    assert stands["refused"][0]["problems"] == [problem]
    assert stands["revision"] == streams[0].held.revision
    for stream in streams:
        stream.close()


def test_waiting_ends_with_the_time_that_was_given(live: Live) -> None:
    name = fresh("gw")
    stream = live.enrol("gateway", name).stream()
    stream.next()
    answer = live.rest.post("/tenants", {"name": fresh("tenant")}, wait="applied", timeout=0.5)
    assert f"gateway/{name}" in answer["convergence"]["pending"]
    assert answer["convergence"]["waited_ms"] >= 500
    stream.close()


def test_a_dry_run_reaches_no_target(live: Live) -> None:
    before = live.revision()
    live.rest.post("/tenants", {"name": "never"}, dry_run="true")
    change(live, fresh("tenant"))
    assert live.revision() == before + 1
    with pytest.raises(RestError, match="404"):
        live.rest.get("/tenants/never")


def test_a_write_of_another_process_is_found_and_pushed(live: Live) -> None:
    target = live.enrol("gateway", fresh("gw"))
    stream = target.stream()
    stream.next()
    target.ack(stream.held)
    name = fresh("tenant")
    live.run("manage.py", "shell", "-v", "0", "-c", WRITE_ELSEWHERE.format(name=name))
    while name not in stream.held.content["tenants"]:
        assert stream.next() is not None
        target.ack(stream.held)
    stream.close()


WRITE_ELSEWHERE = """
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.tenants.services import TENANTS
with unit_of_work(SYSTEM, "written by another process") as unit:
    TENANTS.create(unit, "{name}", {{}})
"""
