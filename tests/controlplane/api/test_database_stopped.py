"""A real web process whose PostgreSQL stands still, its connections open."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.controlplane.configs.live import live_site
from tests.servers import postgres_server, stopped_postgres
from tests.services import wait_for

# Much longer than the check waits, and much shorter than the database's own limit of a statement, which is a minute.
IN_TIME_SECONDS = 20


def readiness(address: str) -> tuple[int, Any]:
    """Raises TimeoutError for an answer that comes late."""
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=IN_TIME_SECONDS) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_readiness_is_told_in_time_and_comes_back(tmp_path: Path) -> None:
    with postgres_server() as url, live_site(tmp_path, HEADWORKS_DATABASE_URL=url) as live:
        assert readiness(live.address) == (200, {"status": "ready", "missing": []})
        with stopped_postgres(url):
            # One kept answer may come first.
            wait_for(lambda: readiness(live.address)[0] == 503, 30, "an answer that it is not ready")
            assert readiness(live.address)[1]["missing"] == ["the database does not answer"]
        wait_for(lambda: readiness(live.address)[0] == 200, 30, "readiness")
