"""REST of the whole configuration as one document."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from controlplane.configs.bulk import apply_document
from controlplane.configs.document import FORMAT, document_at, document_now, written_sections
from controlplane.configs.document_text import read_document
from controlplane.configs.edits import checked_document
from controlplane.core.answer_headers import set_answer_header
from controlplane.core.bodies import inlined
from controlplane.core.preconditions import entity_tag
from controlplane.core.rest import json_answer
from controlplane.core.security import admin, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.core.yaml_text import write_yaml
from controlplane.telemetry.refusals import UnsupportedForm
from wire.canonical import MAX_INTEGER

JSON, YAML = "application/json", "application/yaml"
_YAML_FORMS = (YAML, "application/x-yaml", "text/yaml")
DIFF_MAX_CHARACTERS = 200_000

router = Router(tags=["configuration"])
Number = Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="As it was in this revision.")]
Form = Annotated[Literal["yaml", "json"] | None, Query(alias="format", description="Instead of `Accept`.")]
Allowed = Annotated[
    bool,
    Query(description="Also where keys or engines go, or more than HEADWORKS_CONFIG_REMOVALS_PERCENT of a section."),
]


def _schema() -> dict[str, Any]:
    sections = {
        section.name: {"type": "object", "additionalProperties": inlined(written.fields.model_json_schema())}
        for section, written in written_sections()
    }
    return {
        "type": "object",
        "required": ["format"],
        "properties": {"format": {"const": FORMAT}, **sections},
        "additionalProperties": False,
    }


_CONTENT: dict[str, Any] = {
    JSON: {"schema": _schema()},
    YAML: {"schema": {"type": "string", "description": "The same as YAML."}},
}


@router.get(
    "/config", auth=viewer, response={200: None}, summary="Export the configuration",
    openapi_extra={"responses": {200: {"content": _CONTENT}}},
)  # fmt: skip
def export(request: HttpRequest, revision: Number = None, form: Form = None) -> HttpResponse:
    """What people set, as one document, which PUT takes: JSON or YAML, as `Accept` or `format` says.

    As the last write left it, or as it was in a `revision`. Without keys, nodes, cordons, overrides and temporary
    limits.
    """
    document = document_now() if revision is None else document_at(revision)
    tag = {"ETag": entity_tag(document)}
    if form == "yaml" or (form is None and request.get_preferred_type([JSON, *_YAML_FORMS]) in _YAML_FORMS):
        headers = {"Cache-Control": "no-store", **tag}
        return HttpResponse(write_yaml(document), content_type=f"{YAML}; charset=utf-8", headers=headers)
    return json_answer(document, headers=tag)


@router.put(
    "/config", auth=admin, response=WriteAnswer, summary="Apply a whole configuration",
    openapi_extra={"requestBody": {"required": True, "content": _CONTENT}},
)  # fmt: skip
def apply(request: HttpRequest, options: Options, allow_removals: Allowed = False) -> WriteAnswer:
    """One revision. A section that is given is whole: what it lacks is removed; one that is not stays as it is.

    `item`: the `diff` as text, how many entries are created, changed and removed, how many keys go with tenants, and
    the document's ETag afterwards. 409 `removals` where the document may be half of one (see `allow_removals`); a dry
    run warns of it.
    """
    # All that needs no row, before the unit of work, which keeps others from writing.
    checked = checked_document(read_document(request.body, json=_is_json(request)))
    # Read once, within the unit of work.
    before = cache(document_now)
    answer = perform(
        request,
        options,
        lambda unit: apply_document(
            unit, before(), checked, allow_removals=allow_removals, diff_max_characters=DIFF_MAX_CHARACTERS
        ),
        current=before,
    )
    if answer.item is not None and not options.dry_run:
        # Of the document, and not of what is said of the edit.
        set_answer_header(request, "ETag", answer.item["etag"])
    return answer


def _is_json(request: HttpRequest) -> bool:
    if request.content_type not in (JSON, *_YAML_FORMS):
        raise UnsupportedForm(f"send the configuration as {JSON} or {YAML}")
    return request.content_type == JSON
