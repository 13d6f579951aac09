"""Files and batches as tenants' calls reach the control plane: bounds, lists, expiry, a full disk."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.utils import timezone

from controlplane.batches import tasks
from controlplane.batches.folder import Folder
from controlplane.batches.models import Batch, File, Line
from controlplane.batches.reading import raw_lines
from controlplane.batches.store import new_id, store
from controlplane.batches.work import sweep
from tests.controlplane.batches.conftest import CHAT, GatewayCalls, content_of, done, line, sweep_until_still
from tests.controlplane.conftest import Rest


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_file_is_kept_listed_read_and_deleted_by_its_tenant_alone(gateway: GatewayCalls) -> None:
    made = gateway.upload(line("a"), **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}).json()
    assert (made["bytes"], made["filename"], made["purpose"]) == (len(line("a")), "in.jsonl", "batch")
    assert made["expires_at"] - made["created_at"] == 3600
    assert content_of(gateway.get(f"/files/{made['id']}/content")) == line("a")
    for path in ("", "/content"):
        assert refusal(gateway.get(f"/files/{made['id']}{path}", "beta")) == (404, "file_not_found")
    assert refusal(gateway.post(f"/files/{made['id']}/delete", tenant="beta")) == (404, "file_not_found")
    assert gateway.get("/files", "beta").json()["data"] == []
    assert gateway.post(f"/files/{made['id']}/delete").json() == {"id": made["id"], "object": "file", "deleted": True}
    assert refusal(gateway.get(f"/files/{made['id']}")) == (404, "file_not_found")
    with pytest.raises(FileNotFoundError):
        store().open(made["id"])


def test_lists_come_in_pages_both_ways(gateway: GatewayCalls) -> None:
    ids = [gateway.upload(line(f"{number}")).json()["id"] for number in range(3)]
    first = gateway.get("/files?limit=2").json()
    assert ([each["id"] for each in first["data"]], first["has_more"]) == ([ids[2], ids[1]], True)
    rest = gateway.get(f"/files?limit=2&after={first['last_id']}").json()
    assert ([each["id"] for each in rest["data"]], rest["has_more"]) == ([ids[0]], False)
    assert [each["id"] for each in gateway.get("/files?order=asc").json()["data"]] == ids
    assert gateway.get("/files?purpose=batch_output").json()["data"] == []
    batches = [gateway.begin(line("x")) for _ in range(2)]
    page = gateway.get("/batches?limit=1").json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([batches[1]], True)
    page = gateway.get(f"/batches?limit=1&after={batches[1]}").json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([batches[0]], False)
    assert refusal(gateway.get("/batches?after=batch_none")) == (404, "batch_not_found")


@pytest.mark.parametrize(
    ("content", "form", "code"),
    [
        (b"", {}, "bad_upload"),
        (line("a"), {"purpose": "fine-tune"}, "bad_upload"),
        (line("a"), {"file": "no file"}, "bad_upload"),
        (line("a"), {"expires_after[seconds]": "soon"}, "bad_upload"),
        (line("a"), {"expires_after[seconds]": "10"}, "bad_upload"),
    ],
)
def test_an_upload_that_is_none_is_refused(gateway: GatewayCalls, content: bytes, form: Any, code: str) -> None:
    assert refusal(gateway.upload(content, **form)) == (400, code)
    assert not File.objects.exists()


def test_a_tenant_has_bounds_and_each_is_named(gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_BATCH_FILE_MAX_BYTES", "3000")
    monkeypatch.setenv("HEADWORKS_BATCH_TENANT_MAX_BYTES", "4000")
    monkeypatch.setenv("HEADWORKS_BATCH_OPEN_MAX", "1")
    assert refusal(gateway.upload(b"x" * 3001)) == (413, "too_large")
    assert gateway.upload(b"x" * 3000).status_code == 200
    assert refusal(gateway.upload(b"x" * 1001)) == (429, "batch_files_full")
    assert gateway.upload(b"x" * 1001, "beta").status_code == 200
    file_id = gateway.upload(line("a")).json()["id"]
    asked = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
    batch_id = gateway.post("/batches", asked).json()["id"]
    assert refusal(gateway.post("/batches", asked)) == (429, "too_many_batches")
    assert refusal(gateway.post(f"/files/{file_id}/delete")) == (409, "file_in_use")
    gateway.post(f"/batches/{batch_id}/cancel")
    sweep_until_still()
    assert gateway.post("/batches", asked).status_code == 200


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"completion_window": "soon"}, "24h"),
        ({"completion_window": "169h"}, "HEADWORKS_BATCH_WINDOW_MAX_HOURS"),
        ({"endpoint": "/v1/rerank"}, "/v1/embeddings"),
        ({"metadata": {"k" * 65: "v"}}, "64"),
        ({"metadata": {str(number): "v" for number in range(17)}}, "16"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "3600"),
        ({"input_file_id": None}, "input_file_id"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_with_what_would_be_right(
    gateway: GatewayCalls, changes: dict[str, Any], says: str
) -> None:
    file_id = gateway.upload(line("a")).json()["id"]
    asked = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **changes}
    answer = gateway.post("/batches", asked)
    assert refusal(answer) == (400, "bad_batch")
    assert says in answer.json()["detail"]
    assert not Batch.objects.exists()


def test_an_output_is_no_input(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a"))
    sweep_until_still()
    gateway.hand_over(*map(done, gateway.lease()))
    sweep_until_still()
    output = gateway.batch(batch_id)["output_file_id"]
    asked = {"input_file_id": output, "endpoint": CHAT, "completion_window": "24h"}
    assert refusal(gateway.post("/batches", asked)) == (400, "bad_batch")


def test_a_node_works_on_no_batch(gateway: GatewayCalls) -> None:
    node = GatewayCalls("n-1", "node")
    assert refusal(node.get("/files")) == (403, "wrong_kind")
    assert refusal(node.post("/leases", {"wants": [], "known": []})) == (403, "wrong_kind")


def test_a_gateway_must_say_whose_call_it_is(gateway: GatewayCalls) -> None:
    assert refusal(gateway.get("/files", "")) == (400, "malformed")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes anywhere")
def test_a_folder_that_cannot_be_written_is_told(gateway: GatewayCalls, folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "batches").mkdir(mode=0o500)
    assert refusal(gateway.upload(line("a"))) == (503, "unavailable")


def test_a_full_disk_holds_a_batch_up_and_loses_nothing(gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_id = gateway.begin(line("a"))
    sweep_until_still()
    gateway.hand_over(*map(done, gateway.lease()))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        sweep(store())
        assert gateway.upload(line("b")).status_code == 503
    batch = gateway.batch(batch_id)
    assert (batch["status"], batch["output_file_id"]) == ("finalizing", None)
    assert "No space left on device" in Batch.objects.get().said
    assert store().drop_halves(0) == 0
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert batch["status"] == "completed"
    assert len(gateway.output(batch["output_file_id"])) == 1
    assert not Batch.objects.get().said


def test_a_disk_that_fills_while_a_large_file_comes_in_is_told(
    gateway: GatewayCalls, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    def full(handler: TemporaryFileUploadHandler, raw_data: bytes, start: int) -> None:
        raise OSError(28, "No space left on device")

    settings.FILE_UPLOAD_MAX_MEMORY_SIZE = 0
    with monkeypatch.context() as patched:
        patched.setattr(TemporaryFileUploadHandler, "receive_data_chunk", full)
        answer = gateway.upload(line("a"))
    assert refusal(answer) == (503, "unavailable")
    assert "No space left on device" in answer.json()["detail"]
    assert gateway.upload(line("a")).status_code == 200


def test_a_worker_that_died_over_a_file_is_followed_by_another(gateway: GatewayCalls) -> None:
    batch_id = gateway.begin(line("a") + line("b"))
    # As it would be left: claimed, and half of the rows made.
    soon = timezone.now() + timedelta(seconds=30)
    Batch.objects.update(worked_until=soon)
    Line.objects.create(batch_id=batch_id, number=1, custom_id="a", model="m", due_at=timezone.now())
    assert sweep(store()) == 0
    assert gateway.lease() == []
    Batch.objects.update(worked_until=timezone.now() - timedelta(seconds=1))
    sweep_until_still()
    assert gateway.batch(batch_id)["request_counts"]["total"] == 2
    assert len(gateway.lease()) == 2


def test_what_has_expired_is_forgotten_but_for_what_a_batch_reads(gateway: GatewayCalls, tmp_path: Path) -> None:
    old = gateway.upload(line("old")).json()["id"]
    gateway.begin(line("read"))
    File.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    kept = gateway.upload(line("kept")).json()["id"]
    orphan, half = tmp_path / "batches" / new_id(), tmp_path / "batches" / f"{new_id()}.x.part"
    for path in (orphan, half):
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    assert tasks.prune_batches() == 3
    left = set(File.objects.values_list("pk", flat=True))
    assert old not in left
    assert kept in left
    assert len(left) == 2
    assert {path.name for path in (tmp_path / "batches").iterdir()} == left


def test_batches_that_ended_long_ago_are_forgotten(gateway: GatewayCalls) -> None:
    gateway.begin(line("a", method="GET"))
    sweep_until_still()
    assert tasks.prune_batches() == 0
    Batch.objects.update(expires_at=timezone.now() - timedelta(days=61))
    assert tasks.prune_batches() == 1


def test_long_lines_are_skipped_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"short\n" + b"x" * 200_000 + b"\n\r\n" + b"last")
    with path.open("rb") as file:
        found = [(raw.number, raw.offset_bytes, raw.text) for raw in raw_lines(file, 100)]
    assert found == [(1, 0, b"short"), (2, 6, None), (4, 200_009, b"last")]


def test_whoever_gets_the_name_of_a_tenant_that_is_gone_finds_nothing(gateway: GatewayCalls, admin: Rest) -> None:
    for name in ("acme", "beta"):
        assert admin.post("/tenants?reason=new", {"name": name}).status_code in (200, 201)
        gateway.begin(line("a"), name)
    sweep_until_still()
    assert admin.delete("/tenants/acme?reason=gone").status_code == 200
    assert {batch.tenant for batch in Batch.objects.all()} == {file.tenant for file in File.objects.all()} == {"beta"}
    assert [each["batch"] for each in gateway.lease()] == [Batch.objects.get().pk]
    File.objects.all().delete()
    for path in Path(os.environ["HEADWORKS_BATCH_DIR"]).iterdir():
        os.utime(path, (1, 1))
    assert tasks.prune_batches() == 2
