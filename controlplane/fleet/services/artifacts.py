"""Artifacts: files that targets fetch by their SHA-256. Checked before they are stored, never changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from django.db.models import QuerySet
from pydantic import Field

from controlplane import settings_rows
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound, TooLarge
from controlplane.core.nouns import PAGE_ROWS, page_of, some_of
from controlplane.fleet import models as rows
from policy.chat_template import check_template
from policy.model_tokenizer import ModelTokenizer
from policy.template_work import BadTemplate
from wire.canonical import Document
from wire.manifest import BadManifest, read_manifest
from wire.problems import Problem

# Some files load and cannot encode, such as one without the unknown token that it names.
_SAMPLE = "Prompts are measured with this: 123 ölçü"
NOUN, CHUNK_BYTES = "artifact", 1 << 20


class ArtifactFields(f.Fields):
    kind: Literal["tokenizer", "chat_template", "model_manifest"]
    name: Annotated[f.Text, Field(min_length=1, max_length=200)]


@dataclass(frozen=True)
class CheckedFile:
    """A file that is what it is said to be; made by `check` alone."""

    kind: str
    name: str
    content: bytes
    sha256: str


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_bounded(body: Readable) -> bytes:
    """The whole body, read as a stream. Raises TooLarge as soon as it is over HEADWORKS_ARTIFACT_MAX_BYTES."""
    limit = settings_rows.ARTIFACT_MAX_BYTES.read()
    content = bytearray()
    while chunk := body.read(CHUNK_BYTES):
        content += chunk
        if len(content) > limit:
            raise TooLarge(f"an artifact may have at most {limit} bytes (HEADWORKS_ARTIFACT_MAX_BYTES)")
    return bytes(content)


def check(kind: str, name: str, content: bytes) -> CheckedFile:
    """Load and use the file as targets will. It takes seconds for the largest, so do it before the unit of work opens.

    Raises Refused.
    """
    fields = f.read(ArtifactFields, {"kind": kind, "name": name})
    if problem := _PROBLEM_OF[fields.kind](content):
        f.refuse_if([Problem("/", fields.kind, problem)])
    return CheckedFile(fields.kind, fields.name, content, hashlib.sha256(content).hexdigest())


def _tokenizer_problem(content: bytes) -> str | None:
    try:
        ModelTokenizer.read(content).counts([_SAMPLE])
    except BaseException as error:
        # The library raises plain Exception for most bad files, and a panic, which is none, for some.
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        return f"this is no Hugging Face tokenizer.json that can be used: {str(error)[:200]}"
    return None


def _chat_template_problem(content: bytes) -> str | None:
    try:
        check_template(content.decode(), time.time)
    except UnicodeDecodeError:
        return "send the text of a Jinja chat template; these bytes are not UTF-8"
    except BadTemplate as error:
        return f"this is no Jinja chat template that can be used: {str(error)[:200]}"
    return None


def _manifest_problem(content: bytes) -> str | None:
    try:
        read_manifest(content)
    except BadManifest as error:
        return f"this is no manifest as `headworks model-manifest` prints it: {str(error)[:500]}"
    return None


_PROBLEM_OF: Mapping[str, Callable[[bytes], str | None]] = {
    "tokenizer": _tokenizer_problem,
    "chat_template": _chat_template_problem,
    "model_manifest": _manifest_problem,
}


def describe(row: rows.Artifact) -> Document:
    return {
        "sha256": row.sha256,
        "kind": row.kind,
        "name": row.name,
        "size_bytes": row.size_bytes,
        "uploaded_at": f.iso(row.uploaded_at),
    }


def page(limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[rows.Artifact], int | None]:
    """Artifacts without their content, oldest first."""
    return page_of(_without_content().filter(pk__gt=after).order_by("pk"), limit, lambda row: row.pk)


def content_of(sha256: str) -> bytes:
    """The bytes of an artifact. Raises NotFound."""
    content = rows.Artifact.objects.filter(sha256=_known_form(sha256)).values_list("content", flat=True).first()
    if content is None:
        raise NotFound(f"there is no artifact {sha256}")
    return bytes(content)


def get(sha256: str) -> rows.Artifact:
    """The artifact without its content. Raises NotFound."""
    row = _without_content().filter(sha256=_known_form(sha256)).first()
    if row is None:
        raise NotFound(f"there is no artifact {sha256}")
    return row


def find_locked(sha256: str, kind: str = "") -> rows.Artifact | None:
    """The artifact (of this kind alone), held until the transaction ends, so that what refers to it stays true."""
    of_kind = {"kind": kind} if kind else {}
    return _without_content().select_for_update().filter(sha256=sha256, **of_kind).first()


def create(unit: UnitOfWork, file: CheckedFile) -> rows.Artifact:
    """Store a file. Of the same bytes there is one row, whatever their name: a second time changes nothing."""
    row, new = rows.Artifact.objects.defer("content").get_or_create(
        sha256=file.sha256,
        defaults={"kind": file.kind, "name": file.name, "size_bytes": len(file.content), "content": file.content},
    )
    if new:
        unit.record(NOUN, row.sha256, None, describe(row))
    return row


def delete(unit: UnitOfWork, sha256: str) -> None:
    row = find_locked(_known_form(sha256))
    if row is None:
        raise NotFound(f"there is no artifact {sha256}")
    models = row.models.all() | row.templates_of.all() | row.manifest_of.all()
    users = [f"model {name!r}" for name in models.distinct().order_by("name").values_list("name", flat=True)]
    if users:
        raise Conflict(f"artifact {sha256} is used by {some_of(users)}; change these first", code="in_use")
    unit.record(NOUN, sha256, describe(row), None)
    row.delete()


def _known_form(sha256: str) -> str:
    if f.LIKE_SHA256.refusal(sha256):
        raise NotFound("an artifact is named by its SHA-256, 64 lower-case hex digits")
    return sha256


def _without_content() -> QuerySet[rows.Artifact]:
    return rows.Artifact.objects.defer("content")
