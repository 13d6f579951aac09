"""An API that the engines of a model do not have: the client is told so, and nothing is held against the engines."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.gateway.fleet import RunningGateway, ScriptedEngine, chat
from tests.gateway.protocols import BODIES, PATHS

# As many failures as open any breaker by default.
MANY = 30


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_path_that_the_engine_does_not_have_opens_no_breaker(
    gateway: RunningGateway, engine: ScriptedEngine, status: int
):
    async def only_chats(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.path == PATHS["chat"]:
            return await engine.answer(request, body)
        return web.json_response({"detail": "Not Found"}, status=status)

    engine.behave = only_chats
    for api in ("rerank", "embeddings", "responses") * (MANY // 3):
        assert await gateway.refusal(BODIES[api], path=PATHS[api]) == (400, "api_not_served")
    assert (await gateway.call(chat()))[0] == 200
    assert await gateway.metric("headworks_gateway_breaker_state", state="closed") >= 1


async def test_a_model_that_the_engine_does_not_know_is_the_engines_fault(
    gateway: RunningGateway, engine: ScriptedEngine
):
    error = {"message": "The model `served-8b` does not exist.", "type": "NotFoundError", "code": 404}
    engine.behave = engine.failing(404, {"error": error})
    reasons = {(await gateway.refusal(chat()))[1] for _ in range(MANY)}
    assert reasons == {"engine_error", "breaker_open"}
