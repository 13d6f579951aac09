"""Contents of files in a folder and in a bucket: the same to whoever uses them, whole or not there."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controlplane import cli
from controlplane.batches import bucket as s3
from controlplane.batches.bucket import STRETCH_BYTES, Bucket, Place
from controlplane.batches.folder import Folder
from controlplane.batches.models import Batch
from controlplane.batches.store import Store, new_id, store
from controlplane.core.kept import CannotStart
from tests.controlplane.batches.conftest import GatewayCalls, done, line, sweep_until_still, use_bucket
from tests.controlplane.batches.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, Objects

PART_BYTES = 5 * 2**20


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small as S3 takes them."""
    monkeypatch.setattr(s3, "PART_BYTES", PART_BYTES)


@pytest.fixture(params=["folder", "bucket"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Folder(tmp_path / "folder")
    return bucket_of(request.getfixturevalue("objects"))


def bucket_of(objects: Objects, **changes: str) -> Bucket:
    return Bucket(Place(BUCKET, objects.address, "eu-1", ACCESS_KEY, SECRET_KEY)._replace(**changes))


def test_a_content_is_kept_read_from_anywhere_replaced_and_deleted(kept: Store) -> None:
    file_id = new_id()
    assert kept.put(file_id, [b"first\n", b"", b"second\n", b"third"]) == 18
    with kept.open(file_id) as file:
        assert file.readline() == b"first\n"
        file.seek(13)
        assert file.read() == b"third"
        file.seek(6)
        assert file.read(6) == b"second"
        file.seek(100)
        assert file.read(1) == b""
    assert kept.put(file_id, [b"other"]) == 5
    with kept.open(file_id) as file:
        assert file.read() == b"other"
    kept.delete(file_id)
    kept.delete(file_id)
    with pytest.raises(FileNotFoundError):
        kept.open(file_id)


@pytest.mark.parametrize("name", ["file-", "../secret", "file-" + "g" * 32])
def test_only_ids_of_ours_are_opened(kept: Store, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        kept.open(name)


@pytest.mark.parametrize("size_bytes", [10, PART_BYTES + 10], ids=["one request", "parts"])
def test_what_breaks_off_leaves_what_was_there_and_no_half(kept: Store, size_bytes: int) -> None:
    file_id = new_id()
    kept.put(file_id, [b"before"])

    def parts() -> Iterator[bytes]:
        yield b"x" * size_bytes
        raise RuntimeError("the sender left")

    with pytest.raises(RuntimeError, match="the sender left"):
        kept.put(file_id, parts())
    with kept.open(file_id) as file:
        assert file.read() == b"before"
    assert kept.drop_halves(0) == 0


def test_old_contents_and_halves_are_found(tmp_path: Path, objects: Objects) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    names = [new_id() for _ in range(5)]
    in_folder, in_bucket = Folder(tmp_path), bucket_of(objects)
    for name in (*names, new_id(), "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
        objects.objects[name] = (b"x", datetime.now(UTC))
    (tmp_path / "folder").mkdir()
    (tmp_path / f"{new_id()}.a.part").write_bytes(b"x")
    for path in (*map(tmp_path.joinpath, names), *tmp_path.glob("*.part")):
        os.utime(path, (long_ago.timestamp(),) * 2)
    for name in names:
        objects.objects[name] = (b"x", long_ago)
    objects.uploads = {"old": (new_id(), {}, long_ago), "new": (new_id(), {}, datetime.now(UTC))}
    objects.page_size = 2
    for each in (in_folder, in_bucket):
        assert sorted(each.old_ids(3600)) == sorted(names)
        assert each.drop_halves(3600) == 1
    assert list(objects.uploads) == ["new"]
    # What else lies in the bucket is not ours.
    assert "notes.txt" in objects.objects


def test_a_large_object_goes_and_comes_in_parts(objects: Objects) -> None:
    kept, file_id = bucket_of(objects), new_id()
    block = bytes(range(256)) * 4096
    blocks = 2 * PART_BYTES // len(block) + 1
    assert kept.put(file_id, (block for _ in range(blocks))) == blocks * len(block)
    assert objects.largest_body == PART_BYTES
    assert [call for call, key in objects.calls] == ["POST", "PUT", "PUT", "PUT", "POST"]
    objects.calls.clear()
    with kept.open(file_id) as file:
        assert all(file.read(len(block)) == block for _ in range(blocks))
        assert file.read() == b""
    assert len(objects.calls) == 1 + blocks * len(block) // STRETCH_BYTES


def test_lines_beside_each_other_are_fetched_at_once(objects: Objects) -> None:
    kept, file_id = bucket_of(objects), new_id()
    kept.put(file_id, [b"%9d\n" % number for number in range(1000)])
    objects.calls.clear()
    with kept.open(file_id) as file:
        for number in range(100, 200):
            file.seek(number * 10)
            assert file.read(10) == b"%9d\n" % number
    assert len(objects.calls) == 2


def test_a_part_that_is_refused_takes_the_others_with_it(objects: Objects) -> None:
    objects.refuse_parts_from = 2
    with pytest.raises(OSError, match="507 InsufficientStorage"):
        bucket_of(objects).put(new_id(), [b"x" * PART_BYTES] * 2)
    assert not objects.objects
    assert not objects.uploads


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"secret_key": "wrong"}, "403 SignatureDoesNotMatch"),
        ({"access_key": "AKIDOTHER"}, "403 InvalidAccessKeyId"),
        ({"bucket": "elsewhere"}, "NoSuchBucket"),
    ],
)
def test_a_store_that_refuses_is_trouble_that_names_it(objects: Objects, changes: dict[str, str], says: str) -> None:
    with pytest.raises(OSError, match=says) as caught:
        bucket_of(objects, **changes).put(new_id(), [b"x"])
    assert objects.address in str(caught.value)
    assert "wrong" not in str(caught.value)


def test_a_bucket_that_is_gone_is_no_missing_file(objects: Objects) -> None:
    with pytest.raises(OSError, match="404 NoSuchBucket") as caught:
        bucket_of(objects, bucket="elsewhere").open(new_id())
    assert not isinstance(caught.value, FileNotFoundError)


def test_an_object_that_changes_under_its_reader_is_trouble(objects: Objects) -> None:
    kept, file_id = bucket_of(objects), new_id()
    kept.put(file_id, [b"before"])
    file = kept.open(file_id)
    kept.put(file_id, [b"behind"])
    with pytest.raises(OSError, match="412"):
        file.read()


def test_a_store_that_is_away_is_trouble(objects: Objects) -> None:
    kept = bucket_of(objects, endpoint_url="http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        kept.put(new_id(), [b"x"])


# Through the calls of a gateway


def test_a_batch_runs_from_bucket_to_bucket(gateway: GatewayCalls, objects: Objects, in_bucket: None) -> None:
    batch_id = gateway.begin(b"".join(line(f"{number}") for number in range(3)))
    sweep_until_still()
    gateway.hand_over(*map(done, gateway.lease()))
    sweep_until_still()
    batch = gateway.batch(batch_id)
    assert batch["status"] == "completed"
    assert [each["custom_id"] for each in gateway.output(batch["output_file_id"])] == ["0", "1", "2"]
    assert gateway.post(f"/files/{batch['input_file_id']}/delete").status_code == 200
    assert set(objects.objects) == {batch["output_file_id"]}


def test_while_the_bucket_refuses_calls_say_so_and_lines_stay(
    gateway: GatewayCalls, objects: Objects, in_bucket: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="controlplane")
    batch_id = gateway.begin(line("a"))
    sweep_until_still()
    file_id = gateway.batch(batch_id)["input_file_id"]
    other = gateway.upload(line("b")).json()["id"]
    objects.refuse = (403, "AccessDenied")
    asked = {"wants": [{"models": ["m"], "lines": 1}], "known": ["m"]}
    # More often than a line may be lost.
    answers = [gateway.post("/leases", asked) for _ in range(6)]
    answers += [gateway.upload(line("c")), gateway.get(f"/files/{file_id}/content")]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "403 AccessDenied" in answer.json()["detail"]
    # Nobody sees it any more, and what it held is found later.
    assert gateway.post(f"/files/{other}/delete").json()["deleted"] is True
    objects.refuse = None
    (leased,) = gateway.lease()
    assert leased["tries"] == 1
    assert SECRET_KEY not in caplog.text


def test_a_bucket_that_refuses_holds_a_batch_up_and_says_why(
    gateway: GatewayCalls, objects: Objects, in_bucket: None
) -> None:
    batch_id = gateway.begin(line("a"))
    objects.refuse = (403, "AccessDenied")
    sweep_until_still()
    assert "403 AccessDenied" in Batch.objects.get().said
    objects.refuse = None
    sweep_until_still()
    assert gateway.batch(batch_id)["status"] == "in_progress"


# Settings


def test_half_a_key_is_refused_by_name(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    use_bucket(objects, monkeypatch)
    monkeypatch.delenv("HEADWORKS_BATCH_S3_SECRET_KEY")
    with pytest.raises(CannotStart, match="HEADWORKS_BATCH_S3_SECRET_KEY"):
        store()


def test_without_a_key_those_of_the_machine_are_used(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_BATCH_S3_BUCKET", BUCKET)
    monkeypatch.setenv("HEADWORKS_BATCH_S3_ENDPOINT_URL", objects.address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    assert store().put(new_id(), [b"x"]) == 1


def test_a_bucket_without_its_library_stops_the_start_by_name(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_bucket(objects, monkeypatch)
    monkeypatch.setattr("controlplane.cli._open_database", lambda: None)
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    monkeypatch.delitem(sys.modules, "controlplane.batches.bucket")
    with pytest.raises(CannotStart, match=r"boto3.session is not installed: install headworks\[server,s3\]"):
        cli._open_with_keys()
