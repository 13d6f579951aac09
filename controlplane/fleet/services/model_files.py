"""The only writer of what nodes tell of models' files, and who asks nodes to fetch and check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.reported import reported_text
from controlplane.fleet import models as rows
from controlplane.fleet.model_files import nodes_of
from controlplane.fleet.services import acts
from controlplane.fleet.services.models import MODELS
from wire.messages import ModelFilesReport
from wire.problems import Problem

# A wave of fetches that one store can serve; more are asked for in further calls.
NODES_MAX = 200


class AskFields(f.Fields):
    """`nodes`: null for all on which engines of the model's pools are."""

    model: f.ModelName
    nodes: Annotated[list[f.Name], Field(min_length=1, max_length=NODES_MAX)] | None = None


def ask(unit: UnitOfWork, action: Literal["fetch_model", "check_model"], fields: Mapping[str, Any]) -> list[rows.Act]:
    """One act a node, all or none. Raises Refused with every problem."""
    asked = f.read(AskFields, fields)
    problems: list[Problem] = []
    model = MODELS.referenced("/model", asked.model, problems)
    f.refuse_if(problems)
    assert model is not None  # noqa: S101 - else there is a problem
    if model.manifest is None or not model.files_folder:
        message = f"model {model.name!r} needs a manifest and a files_folder"
        f.refuse_if([Problem("/model", "no_manifest", message)])
    assert model.manifest is not None  # noqa: S101 - refused above
    names = sorted(set(asked.nodes)) if asked.nodes else nodes_of(model)
    if not names or len(names) > NODES_MAX:
        message = f"{len(names)} nodes have engines of the model's pools; name 1 to {NODES_MAX} nodes"
        f.refuse_if([Problem("/nodes", "range", message)])
    arguments = {"manifest": model.manifest.sha256, "folder": model.files_folder}
    return [acts.create(unit, {"action": action, "node": name, "arguments": arguments}) for name in names]


def take(node: rows.Node, reports: Sequence[ModelFilesReport], now: datetime) -> None:
    """Keep what was reported, and forget what is gone. A wrong clock of the node's puts nothing into the future."""
    told = {(report.manifest, reported_text(report.folder)[:1000]): report for report in reports}
    for row in node.model_files.all():
        if (row.manifest, row.folder) not in told:
            row.delete()
    rows.NodeModelFiles.objects.bulk_create(
        (
            rows.NodeModelFiles(
                node=node,
                manifest=manifest,
                folder=folder,
                state=report.state,
                present_bytes=report.present_bytes,
                total_bytes=report.total_bytes,
                detail=reported_text(report.detail)[:2000],
                at=min(f.from_epoch_ms(min(report.at_ms, f.EPOCH_MS_MAX)), now),
            )
            for (manifest, folder), report in told.items()
        ),
        update_conflicts=True,
        unique_fields=["node", "manifest", "folder"],
        update_fields=["state", "present_bytes", "total_bytes", "detail", "at"],
    )
