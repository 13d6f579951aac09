"""A process that counts as vLLM's processes do, in prometheus_client's multiprocess mode, until its stdin ends."""

import os
import sys

from prometheus_client import Counter, Gauge, Histogram


def main() -> None:
    engine, requests = sys.argv[1], int(sys.argv[2])
    labels = ["model_name", "engine"]
    tokens = Counter("vllm:generation_tokens", "Tokens", labels)
    running = Gauge("vllm:num_requests_running", "Running", labels, multiprocess_mode="mostrecent")
    alive = Gauge("vllm:processes", "Processes", ["kind"], multiprocess_mode="livesum")
    ttft = Histogram("vllm:time_to_first_token_seconds", "TTFT", labels, buckets=(0.1, 1))
    steps = Histogram("vllm:iteration_tokens_total", "Tokens a step", labels, buckets=(8, 64))
    tokens.labels("llama", engine).inc(10 * requests)
    running.labels("llama", engine).set(requests)
    alive.labels("core").set(1)
    for _ in range(requests):
        ttft.labels("llama", engine).observe(0.5)
        steps.labels("llama", engine).observe(9)
    print(os.getpid(), flush=True)
    sys.stdin.read()


main()
