"""The admin REST API: every router, and how errors look."""

from __future__ import annotations

import logging
from copy import deepcopy
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema

from controlplane.alerts.api import router as alerts
from controlplane.alerts.incidents_api import router as incidents
from controlplane.alerts.pipeline_api import router as alert_pipeline
from controlplane.alerts.receivers_api import router as receivers
from controlplane.alerts.rules_api import router as rules
from controlplane.alerts.rules_file_api import router as rules_file
from controlplane.api.docs import STREAM_OPERATION, LocalSwagger, add_headers, add_refusals
from controlplane.api.failed import failure
from controlplane.api.parser import UniqueNames
from controlplane.batches.api import router as batches
from controlplane.batches.work_api import router as batch_work
from controlplane.breakers.api import router as breakers
from controlplane.configs.api import router as configs
from controlplane.configs.document_api import router as document
from controlplane.configs.stage_api import router as stages
from controlplane.configs.stream import PATH as STREAM_PATH
from controlplane.configs.targets_api import TargetOrAdmin, read_artifact
from controlplane.configs.targets_api import router as own_targets
from controlplane.core import fields as f
from controlplane.core.answer_headers import answer_headers
from controlplane.core.api import router as core
from controlplane.core.changes import REASON_MAX_CHARACTERS
from controlplane.core.errors import Refused, TooLarge, problem_response
from controlplane.core.json_text import not_json
from controlplane.core.scope import note_tags
from controlplane.core.targets_api import router as targets
from controlplane.diagnosis.api import router as diagnosis
from controlplane.fleet.acts_api import router as acts
from controlplane.fleet.api import router as fleet
from controlplane.fleet.compatibility_api import router as compatibility
from controlplane.fleet.model_files_api import router as model_files
from controlplane.fleet.versions_api import router as versions
from controlplane.planner.plan_api import router as plans
from controlplane.planner.what_if_api import router as what_if
from controlplane.remediation.api import router as remediation
from controlplane.rollouts.api import router as rollouts
from controlplane.routing.api import router as routing
from controlplane.scaling.api import router as scaling
from controlplane.telemetry.decisions.api import router as decisions
from controlplane.telemetry.recording.api import router as recording
from controlplane.telemetry.writers_api import router as metric_writers
from controlplane.tenants.api import router as tenants
from controlplane.web.account_api import router as account
from controlplane.web.marks_api import router as marks
from controlplane.web.overview_api import router as overview
from controlplane.web.sign_on_api import router as sign_on
from wire.problems import Problem, pointer

log = logging.getLogger(__name__)


class HeadworksAPI(NinjaAPI):
    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        schema = super().get_openapi_schema(**options)
        schema["paths"][STREAM_PATH] = {"get": deepcopy(STREAM_OPERATION)}
        add_refusals(schema)
        add_headers(schema)
        return schema

    def create_response(self, request: HttpRequest, data: Any, **options: Any) -> HttpResponse:
        response = super().create_response(request, data, **options)
        for name, value in answer_headers(request).items():
            response[name] = value
        return response


api = HeadworksAPI(
    title="Headworks",
    version="1",
    description="The control plane of a self-hosted LLM fleet. Every write takes `reason`; see each call for its role.",
    parser=UniqueNames(),
    docs=LocalSwagger(),
    docs_url="docs",
)

api.add_decorator(note_tags, mode="view")

# One address has one set of methods, which one router must hold; fleet has the DELETE of this one.
fleet.get(
    "/artifacts/{sha256}", auth=TargetOrAdmin(), tags=["artifacts"], summary="Read a file", operation_id="read_artifact"
)(read_artifact)

# `own_targets` first: POST nodes/report must not be taken for a node called "report".
for _router in (
    own_targets,
    tenants,
    fleet,
    compatibility,
    versions,
    model_files,
    acts,
    routing,
    breakers,
    configs,
    document,
    stages,
    targets,
    core,
    alerts,
    incidents,
    alert_pipeline,
    receivers,
    rules,
    rules_file,
    recording,
    metric_writers,
    decisions,
    remediation,
    scaling,
    rollouts,
    diagnosis,
    plans,
    what_if,
    batches,
    batch_work,
    marks,
    overview,
    account,
    sign_on,
):
    api.add_router("", _router)


@api.exception_handler(Refused)
def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    return problem_response(error)


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    problems = [_problem(entry) for entry in error.errors]
    return problem_response(f.refused(problems))


def _problem(entry: dict[str, Any]) -> Problem:
    if entry["type"] == "missing" and entry["loc"][0] == "query":
        name = str(entry["loc"][-1])
        says = f"query parameter `{name}` is required"
        if name == "reason":
            says += f": why, 1 to {REASON_MAX_CHARACTERS} characters"
        return Problem(pointer("/", name), "required", says)
    path = "/"
    # The first part says where ninja looked (query, body, path), the second of a body is our parameter's name.
    for part in entry["loc"][1:]:
        path = pointer(path, part)
    return Problem(path, str(entry["type"]), str(entry["msg"]))


@api.exception_handler(HttpError)
def _http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    # Ninja raises this for a body that its parser does not take.
    if isinstance(error.__cause__, Refused):
        return problem_response(error.__cause__)
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return problem_response(not_json())
    refused = Refused(str(error))
    refused.status = HTTPStatus(error.status_code)
    return problem_response(refused)


@api.exception_handler(RequestDataTooBig)
def _too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return problem_response(TooLarge("the body is larger than HEADWORKS_BODY_MAX_BYTES"))


@api.exception_handler(Exception)
def _failed(request: HttpRequest, error: Exception) -> HttpResponse:
    log.error("%s %r failed", request.method, request.path, exc_info=error)
    return problem_response(failure(error))
