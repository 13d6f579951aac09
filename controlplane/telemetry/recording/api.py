"""REST of recording rules: all of them at once, as JSON or as the YAML of a Prometheus rule file."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from controlplane.core.bodies import inlined
from controlplane.core.json_text import not_json, read_json
from controlplane.core.preconditions import entity_tag
from controlplane.core.rest import Page, json_answer
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.telemetry.recording import rules
from controlplane.telemetry.recording.builtin import builtin
from controlplane.telemetry.recording.fields import RecordingFields
from controlplane.telemetry.recording.rule_text import read_rules, write_rules
from controlplane.telemetry.refusals import UnsupportedForm

JSON, YAML = "application/json", "text/yaml"
_YAML_FORMS = (YAML, "application/yaml", "application/x-yaml")


_FORMS: dict[str, Any] = {
    JSON: {"schema": inlined(RecordingFields.model_json_schema())},
    YAML: {"schema": {"type": "string", "description": "A Prometheus rule file."}},
}

router = Router(tags=["recording rules"])


@router.get(
    "/recording-rules", auth=viewer, response={200: None}, summary="Read all recording rules",
    openapi_extra={"responses": {200: {"content": _FORMS}}},
)  # fmt: skip
def read_recording_rules(request: HttpRequest, built_in: bool = False) -> HttpResponse:
    """As JSON or, where `Accept` asks for it, YAML. With `built_in` those that are there until others are given."""
    found = builtin() if built_in else rules.current()
    tag = {"ETag": entity_tag(found)}
    if request.get_preferred_type([JSON, *_YAML_FORMS]) in _YAML_FORMS:
        return HttpResponse(
            write_rules(found), content_type=f"{YAML}; charset=utf-8", headers={"Cache-Control": "no-store", **tag}
        )
    return json_answer(found, headers=tag)


@router.put(
    "/recording-rules", auth=operator, response=WriteAnswer, summary="Replace all recording rules",
    openapi_extra={"requestBody": {"required": True, "content": _FORMS}},
)  # fmt: skip
def replace_recording_rules(request: HttpRequest, options: Options) -> WriteAnswer:
    """Series of rules that are gone end; those of rules that record the same series as before go on."""
    document = _read(request)
    return perform(request, options, lambda unit: rules.replace(unit, document), current=rules.current)


@router.delete("/recording-rules", auth=operator, response=WriteAnswer, summary="Go back to the built-in rules")
def reset_recording_rules(request: HttpRequest, options: Options) -> WriteAnswer:
    """They are followed from version to version, until others are given."""
    return perform(request, options, rules.reset, current=rules.current)


@router.get("/recording-rules/state", auth=viewer, response=Page, summary="List what the last evaluations said")
def list_states(request: HttpRequest) -> Page:
    """Of each rule in order: when it was evaluated last, how many series it gave, and why it gave none."""
    return Page(items=rules.states(), next=None)


def _read(request: HttpRequest) -> Any:
    if request.content_type in _YAML_FORMS:
        return read_rules(request.body)
    if request.content_type != JSON:
        raise UnsupportedForm(f"send rules as {JSON} or {YAML}")
    try:
        return read_json(request.body)
    except (ValueError, RecursionError) as error:
        raise not_json() from error
