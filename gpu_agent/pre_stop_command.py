"""`headworks-agent pre-stop ENGINE`: the running agent takes an engine out of service, and waits until it is empty."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from gpu_agent.page.options import PageOptions

# The page answers by then; beyond it the agent is gone.
_BEYOND_SECONDS = 20
DRAINED, NOT_DRAINED, NOT_ASKED = 0, 1, 2


def pre_stop(engine: str, limit_seconds: int, page: PageOptions | None) -> int:
    """The exit status."""
    if page is None:
        return _said("the agent has no page; set HEADWORKS_AGENT_LISTEN here as it is set for the agent", NOT_ASKED)
    host = f"[{page.host}]" if ":" in page.host else page.host
    address = f"http://{host}:{page.port}/engines/{quote(engine, safe='')}/pre-stop?limit={limit_seconds}"
    request = urllib.request.Request(address)
    if page.token:
        request.add_header("Authorization", f"Bearer {page.token}")
    # No proxy: it is an address of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=limit_seconds + _BEYOND_SECONDS):
            return DRAINED
    except urllib.error.HTTPError as error:
        status = NOT_DRAINED if error.code == 503 else NOT_ASKED
        return _said(_reason(error), status)
    except (OSError, ValueError) as error:
        return _said(f"the agent does not answer at {address}: {error}", NOT_ASKED)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        body: Any = json.load(error)
        return str(body.get("error") or body.get("detail"))
    except (ValueError, AttributeError, OSError):
        return f"the agent answered {error.code}"


def _said(text: str, status: int) -> int:
    print(f"headworks-agent pre-stop: {text}", file=sys.stderr)
    return status
