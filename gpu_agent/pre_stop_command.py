"""`headworks-agent pre-stop ENGINE`: the running agent takes an engine out of service, and waits until it is empty."""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from gpu_agent.page.options import PageOptions

# The page answers by then; beyond it the agent is gone.
_BEYOND_SECONDS = 20
# Within this time whoever keeps the agent running has started it again.
_BACK_SECONDS, _POLL_SECONDS = 10.0, 0.2
DRAINED, NOT_DRAINED, NOT_ASKED = 0, 1, 2


def pre_stop(engine: str, limit_seconds: int, page: PageOptions | None) -> int:
    """The exit status. An agent that ends while it waits is asked again when it is back."""
    if page is None:
        return _said("the agent has no page; set HEADWORKS_AGENT_LISTEN here as it is set for the agent", NOT_ASKED)
    until = time.monotonic() + limit_seconds
    back_until = 0.0
    while True:
        try:
            return _asked(engine, max(1, round(until - time.monotonic())), page)
        except _Ended as ended:
            back_until = min(time.monotonic() + _BACK_SECONDS, until)
            why: Exception = ended
        except (OSError, ValueError) as error:
            why = error
        if time.monotonic() >= back_until:
            return _said(f"the agent does not answer at {page.host}:{page.port}: {why}", NOT_ASKED)
        time.sleep(_POLL_SECONDS)


class _Ended(Exception):
    """The agent took the question, and ended before it answered."""


def _asked(engine: str, limit_seconds: int, page: PageOptions) -> int:
    """The exit status. Raises: _Ended, and OSError or ValueError where nobody could be asked."""
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
    except (http.client.RemoteDisconnected, ConnectionResetError) as error:
        raise _Ended("it ended while it was asked") from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        body: Any = json.load(error)
        return str(body.get("error") or body.get("detail"))
    except (ValueError, AttributeError, OSError):
        return f"the agent answered {error.code}"


def _said(text: str, status: int) -> int:
    print(f"headworks-agent pre-stop: {text}", file=sys.stderr)
    return status
