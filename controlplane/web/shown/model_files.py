"""Files of models on nodes in the form that pages show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.fleet.model_files import described, nodes_of
from controlplane.fleet.models import Model, NodeModelFiles
from wire.canonical import Document


@dataclass(frozen=True)
class FilesLine:
    """One model's files on one node; `told` is None where no agent has told of them yet."""

    node: str
    told: Document | None

    @property
    def look(self) -> str:
        return f"files_{self.told['state']}" if self.told else "unknown"

    @property
    def percent(self) -> int | None:
        """What is there of all bytes."""
        if self.told is None or not self.told["total_bytes"]:
            return None
        return int(min(100, self.told["present_bytes"] * 100 // self.told["total_bytes"]))

    @property
    def at(self) -> datetime | None:
        return datetime.fromisoformat(self.told["at"]) if self.told else None

    @property
    def act_percent(self) -> int | None:
        act = self.told["act"] if self.told else None
        return None if act is None or act["progress_permille"] is None else act["progress_permille"] // 10


@dataclass(frozen=True)
class ModelLines:
    model: Model
    lines: list[FilesLine]


def model_lines() -> list[ModelLines]:
    """Every model with a manifest, on the nodes that serve it and on those that told of its files."""
    models = Model.objects.filter(manifest__isnull=False).exclude(files_folder="").select_related("manifest")
    told: dict[tuple[str, str], dict[str, Document]] = {}
    for document in described(NodeModelFiles.objects.select_related("node")):
        told.setdefault((document["manifest"], document["folder"]), {})[document["node"]] = document
    found = []
    for model in models.order_by("name").defer("manifest__content"):
        of_model = told.get((model.manifest.sha256 if model.manifest else "", model.files_folder), {})
        found.append(ModelLines(model, _on_nodes(model, of_model)))
    return found


def files_of(model: Model) -> list[FilesLine]:
    """One model's files, on the nodes that serve it and those that told of them; none where it has no manifest."""
    if model.manifest is None or not model.files_folder:
        return []
    rows = NodeModelFiles.objects.filter(manifest=model.manifest.sha256, folder=model.files_folder)
    return _on_nodes(model, {document["node"]: document for document in described(rows.select_related("node"))})


def _on_nodes(model: Model, told: Mapping[str, Document]) -> list[FilesLine]:
    return [FilesLine(name, told.get(name)) for name in sorted({*nodes_of(model), *told})]
