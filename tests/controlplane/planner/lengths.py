"""What-if asks that are over in a second."""

from __future__ import annotations

from typing import Any

from wire.sketches import bucket_of


def ask(**changed: Any) -> dict[str, Any]:
    """One that is whole: short prompts and answers, two points."""
    return {
        "prompt_tokens": [[bucket_of(100), 5], [bucket_of(400), 1]],
        "output_tokens": [[bucket_of(10), 5], [bucket_of(30), 1]],
        "arrivals": {"rate_per_second": 5.0},
        "slo": {"ttft_ms": 500, "tpot_ms": 50},
        "max_num_seqs": [2, 32],
        "max_num_batched_tokens": [1024],
        "seeds": 1,
        "warm_up_seconds": 0,
        "measured_seconds": 10,
        "processes": 1,
        **changed,
    }
