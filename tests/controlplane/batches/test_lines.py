"""Lines are given out once, end once, and outlive whoever works on them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.batches import lines as work
from controlplane.batches import reading
from controlplane.batches.folder import Folder
from controlplane.batches.models import Batch, Line
from controlplane.batches.store import store
from controlplane.batches.work import _finalize, sweep
from policy.batches.lines import read_line
from tests.controlplane.batches.conftest import (
    CHAT,
    GatewayCalls,
    done,
    line,
    now_is_past_window,
    sweep_until_still,
)


def end_leases() -> None:
    Line.objects.filter(state="leased").update(due_at=timezone.now() - timedelta(seconds=1))


def test_a_batch_runs_from_its_file_to_its_output(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a") + line("b") + line("c"), metadata={"run": "7"})
    assert gateway.batch(batch_id)["status"] == "validating"
    sweep_until_still()
    assert gateway.batch(batch_id)["request_counts"] == {"total": 3, "completed": 0, "failed": 0}
    leased = gateway.lease()
    assert [item["body"]["messages"][0]["content"] for item in leased] == ["a", "b", "c"]
    assert {(item["batch"], item["tenant"], item["endpoint"], item["tries"]) for item in leased} == {
        (batch_id, "acme", CHAT, 1)
    }
    assert gateway.lease() == []
    # In another order than they stand in the file.
    assert gateway.hand_over(*[done(item) for item in reversed(leased[1:])]) == 2
    refused = {"outcome": "failed", "status": 400, "body": {"error": {"code": "bad_field"}}}
    assert gateway.hand_over(done(leased[0], **refused)) == 1
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["request_counts"]) == ("completed", {"total": 3, "completed": 2, "failed": 1})
    assert batch["metadata"] == {"run": "7"}
    assert all(batch[name] for name in ("in_progress_at", "finalizing_at", "completed_at"))
    output = gateway.output(batch["output_file_id"])
    assert [item["custom_id"] for item in output] == ["b", "c"]
    assert [item["response"]["body"]["echo"] for item in output] == ["b", "c"]
    assert {item["error"] for item in output} == {None}
    (failed,) = gateway.output(batch["error_file_id"])
    assert (failed["custom_id"], failed["response"]["status_code"]) == ("a", 400)
    assert not Line.objects.exists()


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (b"{not json\n", "invalid_json_line"),
        (b"[]\n", "invalid_json_line"),
        (line("x", custom_id=7), "invalid_custom_id"),
        (line("x", method="GET"), "invalid_method"),
        (line("x", url="/v1/embeddings"), "mismatched_url"),
        (line("x", body=[]), "invalid_body"),
        (line("x", body={"messages": []}), "missing_model"),
        (line("x", body={"model": "m", "stream": True}), "stream_not_served"),
        (line("good"), "duplicate_custom_id"),
        (line("x", padding="y" * 3000), "line_too_long"),
        (b'{"custom_id": "\xff"}\n', "invalid_json_line"),
    ],
)
def test_a_broken_line_fails_and_the_rest_runs(
    gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch, broken: bytes, code: str
) -> None:
    monkeypatch.setenv("HEADWORKS_BATCH_LINE_MAX_BYTES", "2000")
    batch_id = gateway.begin(line("good") + broken + b"\n" + line("last"))
    sweep_until_still()
    leased = gateway.lease()
    assert [item["body"]["messages"][0]["content"] for item in leased] == ["good", "last"]
    gateway.hand_over(*map(done, leased))
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["request_counts"]) == ("completed", {"total": 3, "completed": 2, "failed": 1})
    (error,) = gateway.output(batch["error_file_id"])
    assert error["error"]["code"] == code
    assert error["error"]["message"].startswith("line 2: ")


def test_a_file_without_a_good_line_fails_the_batch_and_says_where(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a", method="PUT") + b"nothing\n")
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert batch["status"] == "failed"
    assert batch["failed_at"]
    assert [(each["code"], each["line"]) for each in batch["errors"]["data"]] == [
        ("invalid_method", 1), ("invalid_json_line", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "setting", "code"),
    [(b"\n\n", "100", "empty_file"), (line("a") + line("b"), "1", "too_many_lines")],
)
def test_a_file_that_is_of_no_use_fails_the_batch(
    gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch, content: bytes, setting: str, code: str
) -> None:
    monkeypatch.setenv("HEADWORKS_BATCH_LINES_MAX", setting)
    batch_id = gateway.begin(content)
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["errors"]["data"][0]["code"]) == ("failed", code)
    assert not Line.objects.exists()


def test_the_line_of_a_gateway_that_died_runs_elsewhere_and_counts_once(
    gateway: GatewayCalls, other: GatewayCalls
) -> None:
    batch_id = gateway.begin(line("a"))
    sweep_until_still()
    (first,) = gateway.lease()
    assert other.lease() == []
    end_leases()
    (second,) = other.lease()
    assert (second["id"], second["tries"]) == (first["id"], 2)
    assert second["lease"] != first["lease"]
    # The first one was not dead after all, and is faster.
    assert gateway.hand_over(done(first)) == 1
    assert other.hand_over(done(second)) == 0
    assert gateway.hand_over(done(first)) == 0
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert batch["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
    assert len(gateway.output(batch["output_file_id"])) == 1


def test_a_lease_that_is_renewed_stays_and_one_that_was_lost_is_told(
    gateway: GatewayCalls, other: GatewayCalls
) -> None:
    gateway.begin(line("a") + line("b"))
    sweep_until_still()
    kept, lost = gateway.lease()
    Line.objects.filter(pk=lost["id"]).update(due_at=timezone.now() - timedelta(seconds=1))
    other.lease()
    held = [{"id": each["id"], "lease": each["lease"]} for each in (kept, lost)]
    before = Line.objects.get(pk=kept["id"]).due_at
    assert gateway.post("/renewals", {"lines": held}).json() == {"lost": [lost["id"]]}
    after = Line.objects.get(pk=kept["id"]).due_at
    assert before is not None
    assert after is not None
    assert after > before


def test_a_line_that_is_to_be_tried_again_rests_first(gateway: GatewayCalls) -> None:
    gateway.begin(line("a"))
    sweep_until_still()
    (leased,) = gateway.lease()
    again = {"id": leased["id"], "lease": leased["lease"], "outcome": "again", "after_ms": 60_000}
    assert gateway.hand_over(again) == 0
    assert gateway.lease() == []
    Line.objects.update(due_at=timezone.now())
    (leased,) = gateway.lease()
    # Of a lease that is not its own any more, nothing is believed but an end.
    gateway.hand_over(again)
    assert Line.objects.get().state == "leased"


def test_a_line_that_takes_gateways_with_it_fails(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("poison"))
    sweep_until_still()
    for _ in range(work.LOST_MAX):
        assert len(gateway.lease()) == 1
        end_leases()
    assert gateway.lease() == []
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["request_counts"]["failed"]) == ("completed", 1)
    assert gateway.output(batch["error_file_id"])[0]["error"]["code"] == "gateway_lost"


def test_what_was_not_run_in_its_window_expires_and_what_was_is_kept(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a") + line("b") + line("c"))
    sweep_until_still()
    first, second = gateway.lease(2)
    gateway.hand_over(done(first))
    now_is_past_window(batch_id)
    held = {"lines": [{"id": second["id"], "lease": second["lease"]}]}
    assert gateway.post("/renewals", held).json() == {"lost": [second["id"]]}
    sweep_until_still()
    # One may still be running.
    assert gateway.batch(batch_id)["status"] == "in_progress"
    assert gateway.lease() == []
    end_leases()
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["request_counts"]) == ("expired", {"total": 3, "completed": 1, "failed": 2})
    assert batch["expired_at"]
    errors = gateway.output(batch["error_file_id"])
    assert [(each["custom_id"], each["error"]["code"]) for each in errors] == [
        ("b", "batch_expired"), ("c", "batch_expired"),
    ]  # fmt: skip
    assert gateway.hand_over(done(second)) == 0


def test_a_cancelled_batch_keeps_what_is_done_and_lets_end_what_runs(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a") + line("b") + line("c"))
    sweep_until_still()
    first, second = gateway.lease(2)
    gateway.hand_over(done(first))
    assert gateway.post(f"/batches/{batch_id}/cancel").json()["status"] == "cancelling"
    sweep_until_still()
    assert gateway.batch(batch_id)["status"] == "cancelling"
    assert gateway.lease() == []
    assert gateway.hand_over(done(second)) == 1
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["request_counts"]) == ("cancelled", {"total": 3, "completed": 2, "failed": 1})
    assert [each["custom_id"] for each in gateway.output(batch["output_file_id"])] == ["a", "b"]
    assert gateway.output(batch["error_file_id"])[0]["error"]["code"] == "batch_cancelled"
    # Again is no error, as OpenAI has it.
    assert gateway.post(f"/batches/{batch_id}/cancel").json()["status"] == "cancelled"


def test_a_batch_that_is_cancelled_before_it_is_read_ends_without_a_line(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a"))
    gateway.post(f"/batches/{batch_id}/cancel")
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["output_file_id"], batch["error_file_id"]) == ("cancelled", None, None)


def test_tenants_take_turns_and_those_that_rest_are_left_out(gateway: GatewayCalls) -> None:
    gateway.begin(b"".join(line(f"a{number}") for number in range(10)))
    gateway.begin(line("b1") + line("b2"), tenant="beta")
    sweep_until_still()
    assert sorted(each["tenant"] for each in gateway.lease(4)) == ["acme", "acme", "beta", "beta"]
    assert gateway.lease(4, resting=["acme"]) == []
    assert len(gateway.lease(4)) == 4


def test_each_model_is_asked_for_by_itself_and_unknown_ones_can_be_taken(gateway: GatewayCalls) -> None:
    gateway.begin(line("a", "m") + line("b", "alias") + line("c", "unheard/of"))
    sweep_until_still()

    def taken(*args: Any, **more: Any) -> list[str]:
        return [each["model"] for each in gateway.lease(*args, **more)]

    assert taken(5, ("other",), known=["m", "alias", "unheard/of"]) == []
    assert taken(1, ("m", "alias")) == ["m"]
    assert taken(0, ("m",), known=["m", "alias"], others=4) == ["unheard/of"]
    assert taken(5, ("m", "alias")) == ["alias"]


def test_an_answer_holds_so_many_bytes_or_one_line(gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway.begin(line("a") + line("b", padding="x" * 2_000) + line("c"))
    sweep_until_still()
    monkeypatch.setattr(work, "LEASE_BYTES", 300)
    assert [len(gateway.lease()) for _ in range(3)] == [2, 1, 0]


def test_a_lost_file_fails_the_lines_and_not_the_call(gateway: GatewayCalls, folder: Folder) -> None:
    batch_id = gateway.begin(line("a"))
    sweep_until_still()
    folder.delete(Batch.objects.get().input_file_id)
    assert gateway.lease() == []
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert gateway.output(batch["error_file_id"])[0]["error"]["code"] == "input_lost"


def test_one_that_is_cancelled_while_its_file_is_read_is_read_no_further(
    gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = gateway.begin(line("a") + line("b") + line("c"))
    monkeypatch.setattr("controlplane.batches.reading._ROWS_AT_ONCE", 1)
    store_rows = reading._store

    def cancelled_before_the_second(made: list[Line], claim: Any) -> None:
        if Line.objects.count() == 1:
            gateway.post(f"/batches/{batch_id}/cancel")
        store_rows(made, claim)

    monkeypatch.setattr(reading, "_store", cancelled_before_the_second)
    assert sweep(store()) == 0
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["request_counts"]["total"]) == ("cancelled", 1)
    assert [each["error"]["code"] for each in gateway.output(batch["error_file_id"])] == ["batch_cancelled"]
    assert not Line.objects.exists()


def test_a_batch_is_not_written_up_while_a_line_of_it_is_open(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a"))
    sweep_until_still()
    gateway.lease()
    assert not _finalize(Batch.objects.get(pk=batch_id), timezone.now())
    assert gateway.batch(batch_id)["status"] == "in_progress"


def test_a_batch_that_breaks_a_worker_holds_no_other_up(gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [gateway.begin(line(name)) for name in ("bad", "good")]

    def breaking(text: bytes, endpoint: str) -> Any:
        if b"bad" in text:
            raise ZeroDivisionError
        return read_line(text, endpoint)

    monkeypatch.setattr(reading, "read_line", breaking)
    sweep_until_still()
    assert [gateway.batch(batch_id)["status"] for batch_id in ids] == ["validating", "in_progress"]
    assert "log" in Batch.objects.get(pk=ids[0]).said
