"""A model with a manifest, and what a node told of its files."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.models import Node, NodeModelFiles
from controlplane.fleet.services import MODELS, artifacts
from tests.web.conftest import write
from tests.web.hardware import MODEL
from wire.manifest import FileEntry, Manifest, write_manifest

FOLDER = "/srv/models/llama"


def with_manifest(node: str, **facts: Any) -> str:
    """The SHA-256 of the manifest. `facts`: of the files on the node; none: it told nothing."""
    content = write_manifest(Manifest({"weights.safetensors": FileEntry(16 << 30, "a" * 64)}))
    file = artifacts.check("model_manifest", "llama", content)

    def name_it(unit: UnitOfWork) -> None:
        artifacts.create(unit, file)
        MODELS.update(unit, MODEL, {"manifest": file.sha256, "files_folder": FOLDER})

    write(name_it)
    if facts:
        told = {"present_bytes": 4 << 30, "total_bytes": 16 << 30, "at": timezone.now(), **facts}
        NodeModelFiles.objects.create(node=Node.objects.get(name=node), manifest=file.sha256, folder=FOLDER, **told)
    return file.sha256
