"""Requests made from the published schema, of the right form and of wrong ones: each is answered, none breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from controlplane.configs.stream import PATH as STREAM_PATH
from tests.controlplane.conftest import Rest

pytestmark = pytest.mark.long
SCHEMA = "/api/v1/openapi.json"
# Enough to find what falls over at once, in seconds; the same in every run.
few = settings(
    max_examples=4,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def _in_the_tests_transaction() -> Iterator[None]:
    """A request closes the connection that it finds: the test's own, here. Django's client prevents it likewise."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


# Each a test of its own, so that none takes long: every so manieth operation.
PARTS = 6


def operations(schema: Any) -> Iterator[Any]:
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        yield found.ok()


def makes_nothing(operation: Any) -> bool:
    return "201" not in operation.definition.raw["responses"]


# The site is served by ASGI, where what streams is asynchronous.
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
@pytest.mark.usefixtures("_in_the_tests_transaction")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("mode", "wanted"),
    [(GenerationMode.POSITIVE, {200, 201}), (GenerationMode.NEGATIVE, {400, 422})],
    ids=["right", "wrong"],
)
def test_no_request_that_the_schema_suggests_breaks_it(
    admin: Rest, mode: GenerationMode, wanted: set[int], part: int
) -> None:
    application = get_wsgi_application()
    authorization = {"Authorization": admin.client.defaults["HTTP_AUTHORIZATION"]}
    schema = schemathesis.openapi.from_wsgi(SCHEMA, application, headers=authorization)
    answered: set[int] = set()

    def answer(case: Any) -> int:
        # It would wait for targets, and there are none.
        case.query.pop("wait", None)
        with transaction.atomic():
            response = case.call(headers=authorization)
            # The next request finds the caller and all else as this one did.
            transaction.set_rollback(True)
        assert response.status_code < 500, f"{response.status_code} {response.text} to {case.as_curl_command()}"
        return int(response.status_code)

    # Those that make something first, so that each part has as many, whatever routes come.
    for operation in sorted(operations(schema), key=makes_nothing)[part::PARTS]:
        # Streams stand beside Django.
        if operation.path == STREAM_PATH:
            continue

        @few
        @given(operation.as_strategy(generation_mode=mode))
        def each_is_answered(case: Any) -> None:
            answered.add(answer(case))

        # Of a call that takes nothing, nothing can be wrong.
        with suppress(Unsatisfiable):
            each_is_answered()
    assert wanted <= answered
