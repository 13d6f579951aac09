"""A gateway that works on batches, and the folder of their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.batches import settings_rows as rows
from controlplane.batches.folder import Folder
from controlplane.batches.models import Batch
from controlplane.batches.store import store
from controlplane.batches.work import sweep
from controlplane.core.models import Target
from controlplane.core.tokens import token_hash
from tests.controlplane.batches.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, Objects, s3_store

CHAT = "/v1/chat/completions"


def line(name: str, model: str = "m", **changes: Any) -> bytes:
    """One good line, unless `changes` make it none."""
    body = {"model": model, "messages": [{"role": "user", "content": name}]}
    return json.dumps({"custom_id": name, "method": "POST", "url": CHAT, "body": body, **changes}).encode() + b"\n"


class GatewayCalls:
    """An enrolled gateway; `tenant` is whose key it has looked at."""

    def __init__(self, name: str, kind: str = "gateway") -> None:
        Target.objects.create(
            kind=kind,
            name=name,
            token_hash=token_hash(f"token-of-{name}"),
            token_expires_at=timezone.now() + timedelta(days=1),
            protocol=1,
        )
        self.client = Client(headers={"authorization": f"Bearer token-of-{name}"})

    def get(self, path: str, tenant: str = "acme") -> Any:
        return self.client.get(f"/api/v1/batch-work{path}", headers={"X-Headworks-Tenant": tenant})

    def post(self, path: str, body: Any = None, tenant: str = "acme") -> Any:
        return self.client.post(
            f"/api/v1/batch-work{path}",
            json.dumps(body or {}).encode(),
            content_type="application/json",
            headers={"X-Headworks-Tenant": tenant},
        )

    def upload(self, content: bytes, tenant: str = "acme", **form: Any) -> Any:
        from django.core.files.uploadedfile import SimpleUploadedFile

        fields = {"purpose": "batch", "file": SimpleUploadedFile("in.jsonl", content), **form}
        return self.client.post("/api/v1/batch-work/files", fields, headers={"X-Headworks-Tenant": tenant})

    def begin(self, content: bytes, tenant: str = "acme", window: str = "24h", **fields: Any) -> str:
        """The id of a new batch of these lines."""
        file_id = self.upload(content, tenant).json()["id"]
        asked = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": window, **fields}
        answer = self.post("/batches", asked, tenant)
        assert answer.status_code == 200, answer.content
        return str(answer.json()["id"])

    def lease(self, lines: int = 100, models: tuple[str, ...] = ("m",), **more: Any) -> list[dict[str, Any]]:
        asked = {"wants": [{"models": list(models), "lines": lines}], "known": list(models), **more}
        answer = self.post("/leases", asked)
        assert answer.status_code == 200, answer.content
        found: list[dict[str, Any]] = answer.json()["lines"]
        return found

    def hand_over(self, *results: dict[str, Any]) -> int:
        answer = self.post("/results", {"results": list(results)})
        assert answer.status_code == 200, answer.content
        return int(answer.json()["counted"])

    def output(self, file_id: str, tenant: str = "acme") -> list[dict[str, Any]]:
        return [json.loads(text) for text in content_of(self.get(f"/files/{file_id}/content", tenant)).splitlines()]

    def batch(self, batch_id: str, tenant: str = "acme") -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/batches/{batch_id}", tenant).json()
        return found


def content_of(answer: Any) -> bytes:
    from asgiref.sync import async_to_sync

    async def collect() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(collect)()


def done(leased: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A result with an answer that says which line it is of."""
    answer = {"echo": leased["body"]["messages"][0]["content"]}
    own = {"id": leased["id"], "lease": leased["lease"], "outcome": "done", "status": 200, "request_id": "r"}
    return {**own, "body": answer, **changes}


def sweep_until_still() -> None:
    while sweep(store()):
        pass


def now_is_past_window(batch_id: str) -> None:
    """As if the completion window had ended a second ago."""
    ended = timezone.now() - timedelta(seconds=1)
    Batch.objects.filter(pk=batch_id).update(stops_at=ended, expires_at=ended)


def use_bucket(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rows.S3_BUCKET.name, BUCKET)
    monkeypatch.setenv(rows.S3_ENDPOINT_URL.name, objects.address)
    monkeypatch.setenv(rows.S3_ACCESS_KEY.name, ACCESS_KEY)
    monkeypatch.setenv(rows.S3_SECRET_KEY.name, SECRET_KEY)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv(rows.DIR.name, str(tmp_path / "batches"))
    return Folder(tmp_path / "batches")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Objects]:
    with s3_store() as held:
        yield held


@pytest.fixture
def objects(s3_server: Objects) -> Objects:
    """An empty store that refuses nothing."""
    s3_server.empty()
    return s3_server


@pytest.fixture
def in_bucket(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of batches lie in the bucket."""
    use_bucket(objects, monkeypatch)


@pytest.fixture
def gateway(db: None, folder: Folder) -> GatewayCalls:
    return GatewayCalls("gw-1")


@pytest.fixture
def other(gateway: GatewayCalls) -> GatewayCalls:
    return GatewayCalls("gw-2")
