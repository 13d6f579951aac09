"""The nodes of `bench.telemetry`: each pushes bodies of 5,000 series with one sample each, one after the other.

`python -m bench.support.metric_writers URL SECONDS` reads one target token a line from standard input; the nodes are
named push-0, push-1, … It prints one JSON object: samples taken, seconds, latencies, bodies that were refused.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit

from cramjam import snappy

from wire.remote_write_pb2 import WriteRequest
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, key_of

SERIES = 5000
STEP_MS = 1000


class Node(threading.Thread):
    def __init__(self, url: str, token: str, name: str, until: float) -> None:
        super().__init__()
        self._url, self._until = url, until
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": CONTENT_TYPE,
            "Content-Encoding": CONTENT_ENCODING,
            VERSION_HEADER: VERSION,
        }
        self.latencies: list[float] = []
        self.taken = self.refused = 0
        self._request = WriteRequest()
        for number in range(SERIES):
            labels = {
                "__name__": f"bench_metric_{number // 8}", "node": name, "gpu": str(number % 8),
                "UUID": f"GPU-{number:032x}", "model": "bench/model",
            }  # fmt: skip
            self._request.timeseries.add(labels=key_of(labels)).samples.add()

    def _body(self, turn: int, at_ms: int) -> bytes:
        for number, row in enumerate(self._request.timeseries):
            row.samples[0].timestamp = at_ms
            row.samples[0].value = float((number * 7919 + turn * 104729) % 1000)
        return bytes(snappy.compress_raw(self._request.SerializeToString()))

    def run(self) -> None:
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=60)
        # In the past, a second apart, so that no sample is ahead of the clock.
        at_ms = int(time.time() * 1000) - 24 * 3_600_000
        turn = 0
        while time.monotonic() < self._until:
            body = self._body(turn, at_ms + turn * STEP_MS)
            begun = time.perf_counter()
            connection.request("POST", "/prometheus/api/v1/write", body, self._headers)
            answer = connection.getresponse()
            answer.read()
            self.latencies.append(time.perf_counter() - begun)
            if answer.status == http.HTTPStatus.NO_CONTENT:
                self.taken += SERIES
            else:
                self.refused += 1
            turn += 1
        connection.close()


def main() -> int:
    url, seconds = sys.argv[1], float(sys.argv[2])
    begun = time.monotonic()
    tokens = [line.strip() for line in sys.stdin]
    nodes = [Node(url, token, f"push-{number}", begun + seconds) for number, token in enumerate(tokens)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    latencies = sorted(latency for node in nodes for latency in node.latencies)
    figures = {
        "samples": sum(node.taken for node in nodes),
        "seconds": time.monotonic() - begun,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
        "refused": sum(node.refused for node in nodes),
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
