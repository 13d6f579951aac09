"""The web process: Django, the config streams and the receiver of metrics.

The hub that publishes and distributes the configuration is started and stopped beside them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from django.core.asgi import get_asgi_application

_django: Any = get_asgi_application()

# Only now: they read models, which need Django to be set up.
from controlplane.api.body_limit import with_body_limit  # noqa: E402
from controlplane.configs.hub import hub  # noqa: E402
from controlplane.configs.metrics import REGISTRY  # noqa: E402
from controlplane.configs.stream import with_config_streams  # noqa: E402
from controlplane.telemetry import forwarding  # noqa: E402
from controlplane.telemetry.ingest import with_remote_write  # noqa: E402
from controlplane.telemetry.own_series import ProcessSeries  # noqa: E402

Message = dict[str, Any]
# Remote write bounds its own bodies.
_own_series = ProcessSeries(REGISTRY)
_site = with_remote_write(with_body_limit(with_config_streams(_django)))


async def application(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] != "lifespan":
        await _site(scope, receive, send)
        return
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            hub.start()
            forwarding.resume()
            _own_series.start()
        else:
            _own_series.stop()
            hub.stop()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
