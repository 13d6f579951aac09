from __future__ import annotations

import hashlib
import io
import json

import pytest

from controlplane.core.errors import TooLarge
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Artifact
from controlplane.fleet.services import artifacts
from tests.controlplane.fleet.conftest import problem_paths


def test_a_tokenizer_is_stored_under_its_hash(upload, admin, tokenizer_file):
    answer = upload(tokenizer_file, name="llama.json")
    digest = hashlib.sha256(tokenizer_file).hexdigest()
    assert answer.status_code == 201
    item = answer.json()["item"]
    assert (item["sha256"], item["name"], item["size_bytes"]) == (digest, "llama.json", len(tokenizer_file))
    assert admin.get("/artifacts").json()["items"] == [item]
    assert artifacts.content_of(digest) == tokenizer_file
    assert admin.get(f"/artifacts/{digest}")["ETag"] == answer["ETag"]


def test_the_same_bytes_are_stored_once(upload, tokenizer_file):
    first = upload(tokenizer_file)
    again = upload(tokenizer_file, name="other.json")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["item"] == first.json()["item"]
    assert Artifact.objects.count() == AuditEntry.objects.count() == 1


def test_a_file_that_is_sent_again_with_its_key_is_answered_as_the_first_time(upload, tokenizer_file):
    key = {"Idempotency-Key": "k-1"}
    first, again = (upload(tokenizer_file, **key) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    other = upload(changed(tokenizer_file, truncation=None, added_tokens=[]), **key)
    assert other.json()["code"] == "idempotency_key_reused"


def changed(file: bytes, **parts) -> bytes:
    return json.dumps({**json.loads(file), **parts}).encode()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"version":"1.0","model":{"type":"none"}}'])
def test_a_file_that_is_no_tokenizer_is_refused(upload, content):
    answer = upload(content)
    assert answer.status_code == 422
    assert "tokenizer.json" in answer.json()["detail"]
    assert not Artifact.objects.exists()


@pytest.mark.parametrize(
    "parts",
    [
        # The library panics on this one, which is no Exception in Python.
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        # This one loads, and cannot encode.
        {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "?"}},
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused(upload, tokenizer_file, parts):
    assert upload(changed(tokenizer_file, **parts)).status_code == 422
    assert not Artifact.objects.exists()


PLAIN = b"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def test_a_chat_template_is_stored_and_its_model_names_it(upload, admin):
    answer = upload(PLAIN, name="chat_template.jinja", kind="chat_template")
    assert (answer.status_code, answer.json()["item"]["kind"]) == (201, "chat_template")
    digest = answer.json()["item"]["sha256"]
    assert artifacts.content_of(digest) == PLAIN
    made = admin.post("/models", {"name": "m", "max_context_tokens": 8192, "chat_template": digest})
    assert made.status_code == 201
    wrong_kind = admin.post("/models", {"name": "n", "max_context_tokens": 8192, "tokenizer": digest})
    assert problem_paths(wrong_kind) == {"/tokenizer"}
    assert admin.delete(f"/artifacts/{digest}").json()["code"] == "in_use"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{% for m in messages %}", "end of template"),
        (b"\xff\xfe", "not UTF-8"),
        (b"{{ messages[0].content.x.y }}", "has no attribute"),
        (b"{{ raise_exception('Only users may speak') }}", "Only users may speak"),
        (b"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "passes of its loops"),
    ],
)
def test_a_chat_template_that_cannot_render_a_plain_conversation_is_refused(upload, content, says):
    answer = upload(content, kind="chat_template")
    assert answer.status_code == 422
    assert says in answer.json()["detail"]
    assert not Artifact.objects.exists()


@pytest.mark.parametrize(("query", "path"), [({"kind": "weights"}, "/kind"), ({"name": ""}, "/name")])
def test_a_wrong_kind_or_name_is_refused(upload, tokenizer_file, query, path):
    assert problem_paths(upload(tokenizer_file, **query)) == {path}


def test_a_file_over_the_bound_is_refused(upload, tokenizer_file, monkeypatch):
    monkeypatch.setenv("HEADWORKS_ARTIFACT_MAX_BYTES", "1024")
    answer = upload(tokenizer_file + b" " * 1024)
    assert answer.status_code == 413
    assert "HEADWORKS_ARTIFACT_MAX_BYTES" in answer.json()["detail"]
    assert not Artifact.objects.exists()


def test_a_body_without_end_is_read_no_further_than_the_bound(monkeypatch):
    monkeypatch.setenv("HEADWORKS_ARTIFACT_MAX_BYTES", "1024")
    taken = []

    class Endless(io.RawIOBase):
        def read(self, size: int = -1, /) -> bytes:
            taken.append(size)
            return b" " * size

    with pytest.raises(TooLarge):
        artifacts.read_bounded(Endless())
    assert sum(taken) <= 1024 + artifacts.CHUNK_BYTES


def test_an_artifact_in_use_is_not_deleted(upload, admin, tokenizer_file):
    digest = upload(tokenizer_file).json()["item"]["sha256"]
    admin.post("/models", {"name": "m", "max_context_tokens": 8192, "tokenizer": digest})
    refused = admin.delete(f"/artifacts/{digest}")
    assert refused.status_code == 409
    assert "model 'm'" in refused.json()["detail"]
    admin.patch("/models/m", {"tokenizer": None})
    assert admin.delete(f"/artifacts/{digest}").status_code == 200
    assert admin.delete(f"/artifacts/{digest}").status_code == 404


def test_lists_do_not_read_the_files(upload, admin, tokenizer_file, django_assert_max_num_queries):
    upload(tokenizer_file)
    upload(tokenizer_file + b"\n")
    with django_assert_max_num_queries(2) as captured:
        first = admin.get("/artifacts?limit=1").json()
    assert "content" not in captured[-1]["sql"]
    assert len(admin.get(f"/artifacts?limit=1&after={first['next']}").json()["items"]) == 1
