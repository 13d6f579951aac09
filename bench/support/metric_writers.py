"""The nodes of `bench.telemetry`: each has a node's series, and a body is one sample of each of them, of this moment.

`python -m bench.support.metric_writers URL SECONDS` reads one target token a line from standard input; the nodes are
named push-0, push-1, … Connections share them, each sending the next node's body once the one before is answered. It
prints one JSON object: samples taken, seconds, latencies, bodies that were refused.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from cramjam import snappy

from wire.remote_write_pb2 import WriteRequest
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, key_of

# About what a node of eight GPUs and its engines push at once.
SERIES = 1000
CONNECTIONS = 2


class Node:
    """One target's bodies. No two have the same time."""

    def __init__(self, token: str, name: str) -> None:
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": CONTENT_TYPE,
            "Content-Encoding": CONTENT_ENCODING,
            VERSION_HEADER: VERSION,
        }
        self._turn = self._sent_ms = 0
        self._request = WriteRequest()
        for number in range(SERIES):
            labels = {
                "__name__": f"bench_metric_{number // 8}", "node": name, "gpu": str(number % 8),
                "UUID": f"GPU-{number:032x}", "model": "bench/model",
            }  # fmt: skip
            self._request.timeseries.add(labels=key_of(labels)).samples.add()

    def body(self) -> bytes:
        self._turn += 1
        self._sent_ms = max(self._sent_ms + 1, int(time.time() * 1000))
        for number, row in enumerate(self._request.timeseries):
            row.samples[0].timestamp = self._sent_ms
            row.samples[0].value = float((number * 7919 + self._turn * 104729) % 1000)
        return bytes(snappy.compress_raw(self._request.SerializeToString()))


class Connection(threading.Thread):
    """Sends for its nodes in turn."""

    def __init__(self, url: str, nodes: Sequence[Node], until: float) -> None:
        super().__init__()
        self._url, self._nodes, self._until = urlsplit(url), nodes, until
        self.latencies: list[float] = []
        self.taken = self.refused = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._url.netloc, timeout=60)
        turn = 0
        while time.monotonic() < self._until:
            node = self._nodes[turn % len(self._nodes)]
            body = node.body()
            begun = time.perf_counter()
            connection.request("POST", self._url.path, body, node.headers)
            answer = connection.getresponse()
            answer.read()
            self.latencies.append(time.perf_counter() - begun)
            if http.HTTPStatus.OK <= answer.status <= http.HTTPStatus.NO_CONTENT:
                self.taken += SERIES
            else:
                self.refused += 1
            turn += 1
        connection.close()


def main() -> int:
    url, seconds = sys.argv[1], float(sys.argv[2])
    nodes = [Node(line.strip(), f"push-{number}") for number, line in enumerate(sys.stdin)]
    begun = time.monotonic()
    connections = [Connection(url, nodes[first::CONNECTIONS], begun + seconds) for first in range(CONNECTIONS)]
    for connection in connections:
        connection.start()
    for connection in connections:
        connection.join()
    latencies = sorted(latency for connection in connections for latency in connection.latencies)
    figures = {
        "samples": sum(connection.taken for connection in connections),
        "seconds": time.monotonic() - begun,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
        "refused": sum(connection.refused for connection in connections),
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
