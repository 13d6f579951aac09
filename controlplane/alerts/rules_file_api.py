"""REST of rules as one rule file of Prometheus: written out, taken in, tested."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.rule_file.unit_text import run_file
from controlplane.alerts.services import rule_files
from controlplane.core import fields as f
from controlplane.core.errors import Refused
from controlplane.core.json_text import not_json, read_json
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.core.yaml_text import write_yaml
from controlplane.telemetry.promql.errors import TimedOut
from controlplane.telemetry.refusals import UnsupportedForm
from wire.problems import Problem

JSON, YAML = "application/json", "text/yaml"
_YAML_FORMS = (YAML, "application/yaml", "application/x-yaml")
_FILE: dict[str, Any] = {YAML: {"schema": {"type": "string", "description": "A Prometheus rule file."}}}
Replace = Annotated[bool, Query(description="Remove the rules of the file's groups that the file does not have.")]
Skip = Annotated[bool, Query(description="Leave out what is not known here; warnings name the first 100.")]

# A request is answered meanwhile by one of few threads; the command has longer.
_TEST_SECONDS = 20.0

router = Router(tags=["rules"])


class UnitTest(Schema):
    """Texts in the form of `promtool test rules`, and of the rule files that it names."""

    test: str = Field(description="The file of unit tests, as YAML.")
    rule_files: dict[str, str] | None = Field(
        None, description="Text of each file that its `rule_files` names. Not given: the rules that are stored."
    )


class UnitTested(Schema):
    """Whether all is as expected; of each test what was not."""

    passed: bool
    tests: list[dict[str, Any]]


@router.get(
    "/rules-file", auth=viewer, response={200: None}, summary="Export the rules as a rule file",
    openapi_extra={"responses": {200: {"content": _FILE}}},
)  # fmt: skip
def export(request: HttpRequest) -> HttpResponse:
    """The rules that are on, in their groups and order, as Prometheus reads them."""
    return HttpResponse(
        write_yaml(rule_files.document()),
        content_type=f"{YAML}; charset=utf-8",
        headers={"Cache-Control": "no-store", "Content-Disposition": 'attachment; filename="headworks-rules.yml"'},
    )


@router.post(
    "/rules-file", auth=operator, response=WriteAnswer, summary="Import a rule file",
    openapi_extra={"requestBody": {"required": True, "content": {**_FILE, JSON: {"schema": {"type": "object"}}}}},
)  # fmt: skip
def take(request: HttpRequest, options: Options, replace: Replace = False, skip: Skip = False) -> WriteAnswer:
    """`item`: names of the rules that were created, changed, removed (with `replace`), and that were so already.

    A rule is the one of its group and `alert`. What is not known here is refused with its group and rule, and nothing
    is changed then, unless `skip` leaves it out.
    """
    given = _read(request)
    return perform(request, options, lambda unit: rule_files.take(unit, given, replace=replace, skip=skip).document())


@router.post("/rules-file/test", auth=viewer, response=UnitTested, summary="Run unit tests of rules")
def test(request: HttpRequest, body: UnitTest) -> dict[str, Any]:
    """On our own engine, with the verdicts of `promtool test rules`. Nothing is stored."""
    try:
        verdicts = run_file(body.test.encode(), partial(_found, body.rule_files), _TEST_SECONDS)
    except TimedOut as error:
        raise Refused(f"{error}; `headworks rules test` has longer") from error
    return {
        "passed": not any(verdict.failures for verdict in verdicts),
        "tests": [verdict.document() for verdict in verdicts],
    }


def _found(given: dict[str, str] | None, names: Sequence[str]) -> dict[str, bytes]:
    if given is None:
        return {"the stored rules": write_yaml(rule_files.document()).encode()}
    f.refuse_if(
        [Problem("/rule_files", "missing", f"the text of {name!r} is not given") for name in names if name not in given]
    )
    return {name: given[name].encode() for name in names}


def _read(request: HttpRequest) -> Any:
    if request.content_type in _YAML_FORMS:
        return read_yaml(request.body)
    if request.content_type != JSON:
        raise UnsupportedForm(f"send rules as {YAML} or {JSON}")
    try:
        return read_json(request.body)
    except (ValueError, RecursionError) as error:
        raise not_json() from error
