"""`python -m bench.support.page_queries COOKIE PATH…`: how often each page asks the database, as JSON by path.

In a process as the web process is, with its hub; a page is asked for when nothing that pages share is kept any more.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence

import django

ROUNDS = 5


def main(cookie: str, paths: Sequence[str]) -> None:
    django.setup()
    from django.conf import settings
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from controlplane.configs.hub import hub
    from controlplane.web.kept import KEPT_SECONDS

    client = Client(SERVER_NAME="127.0.0.1")
    client.cookies[settings.SESSION_COOKIE_NAME] = cookie
    hub.start()
    counts: dict[str, float] = {}
    for path in paths:
        client.get(path)
        seen = []
        for _ in range(ROUNDS):
            time.sleep(KEPT_SECONDS + 0.1)
            with CaptureQueriesContext(connection) as queries:
                answer = client.get(path)
            if answer.status_code != 200:
                raise RuntimeError(f"{path} answers {answer.status_code}")
            seen.append(len(queries))
        # Where something changes in the middle of one, what is shared is read twice.
        counts[path] = statistics.median(seen)
    hub.stop()
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
