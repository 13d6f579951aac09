"""Files of models on nodes: what agents told of them last, beside what models say that they should be."""

from __future__ import annotations

import json
from collections.abc import Iterable

from django.db.models import QuerySet

from controlplane.core import fields as f
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.fleet import models as rows
from wire.canonical import Document

WHOLE = "whole"


def missing(model: rows.Model, node_names: Iterable[str]) -> list[str]:
    """What is not whole where, in words; empty: the model's engines may be started on these nodes.

    A model without a manifest says nothing of its files, and lacks none.
    """
    if model.manifest is None or not model.files_folder:
        return []
    names = sorted(set(node_names))
    found = rows.NodeModelFiles.objects.filter(
        node__name__in=names, manifest=model.manifest.sha256, folder=model.files_folder
    )
    by_node = {row.node.name: row for row in found.select_related("node")}
    said = ((name, *_lack(by_node.get(name))) for name in names)
    return [
        f"node {name}: the files of {model.name} in {model.files_folder} {lack}; {_call(verb, model.name, name)}"
        for name, lack, verb in said
        if lack
    ]


def _lack(row: rows.NodeModelFiles | None) -> tuple[str, str]:
    """What is wrong, and the call that mends it; empty where nothing is."""
    if row is None:
        return "were never looked at", "fetch"
    if row.state == WHOLE:
        return "", ""
    if row.state == "present":
        return "are of the right size, and were not read", "check"
    return f"are {row.state}: {row.detail}" if row.detail else f"are {row.state}", "fetch"


def _call(verb: str, model: str, node: str) -> str:
    return f"POST /api/v1/model-files/{verb} {json.dumps({'model': model, 'nodes': [node]})}"


def nodes_of(model: rows.Model) -> list[str]:
    """The nodes on which engines of its pools are."""
    nodes = rows.Node.objects.filter(engines__pool__model=model).distinct().order_by("name")
    return list(nodes.values_list("name", flat=True))


def page(
    *, node: str = "", model: rows.Model | None = None, limit: int = PAGE_ROWS, after: int = 0
) -> tuple[list[rows.NodeModelFiles], int | None]:
    """In the order in which they were first told."""
    found: QuerySet[rows.NodeModelFiles] = rows.NodeModelFiles.objects.select_related("node").filter(pk__gt=after)
    if node:
        found = found.filter(node__name=node)
    if model is not None:
        manifest = model.manifest.sha256 if model.manifest else ""
        found = found.filter(manifest=manifest, folder=model.files_folder)
    return page_of(found.order_by("pk"), limit, lambda row: row.pk)


def described(found: Iterable[rows.NodeModelFiles]) -> list[Document]:
    """With the models that have these files, and how far an act that fetches or checks them has come."""
    listed = list(found)
    models = _models_of(listed)
    running = _running(listed)
    return [
        {
            "id": row.pk,
            "node": row.node.name,
            "models": models.get((row.manifest, row.folder), []),
            "manifest": row.manifest,
            "folder": row.folder,
            "state": row.state,
            "present_bytes": row.present_bytes,
            "total_bytes": row.total_bytes,
            "detail": row.detail or None,
            "at": f.iso(row.at),
            "act": running.get((row.node.name, row.manifest, row.folder)),
        }
        for row in listed
    ]


def _models_of(listed: list[rows.NodeModelFiles]) -> dict[tuple[str, str], list[str]]:
    named = rows.Model.objects.filter(manifest__sha256__in={row.manifest for row in listed}).order_by("name")
    found: dict[tuple[str, str], list[str]] = {}
    for name, manifest, folder in named.values_list("name", "manifest__sha256", "files_folder"):
        found.setdefault((manifest, folder), []).append(name)
    return found


def _running(listed: list[rows.NodeModelFiles]) -> dict[tuple[str, str, str], Document]:
    """The act on each, where one is open: the newest."""
    acts = rows.Act.objects.select_related("node").filter(
        node__in={row.node_id for row in listed},
        action__in=("fetch_model", "check_model"),
        state__in=rows.OPEN_STATES,
    )
    return {
        (act.node.name, act.arguments.get("manifest", ""), act.arguments.get("folder", "")): {
            "id": act.act_id,
            "action": act.action,
            "state": act.state,
            "progress_permille": act.progress_permille,
        }
        for act in acts.order_by("pk")
    }
