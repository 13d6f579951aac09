"""`python -m simulator.what_if < ASK > REPORT`: engine settings tried in virtual time, on the simulator's scheduler.

The ask is JSON (wire/what_if.py), of ASK_MAX_BYTES at most. Lines of progress, `{"done": …, "of": …}`, go to standard
error. Exit status: 0 with a report; 2 with `{"problems": […]}` for what cannot be asked; 3 with `{"error": …}` where it
took too long, or more memory than MEMORY_MAX_BYTES a process.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

import msgspec

from simulator.what_if_sweep import OverTime, RunDied, sweep
from wire.problems import Problem
from wire.what_if import BadAsk, read_json

ASK_MAX_BYTES = 4 * 2**20
# Of addresses, for this process and each that it starts: a run that goes wrong must not take the machine with it.
MEMORY_MAX_BYTES = 4 * 2**30
BAD_ASK, OVER_TIME = 2, 3


def main() -> int:
    bound_memory()
    text = sys.stdin.buffer.read(ASK_MAX_BYTES + 1)
    try:
        if len(text) > ASK_MAX_BYTES:
            raise BadAsk([Problem("/", "too_large", f"give at most {ASK_MAX_BYTES} bytes")])
        return answer(sweep(read_json(text), _tell))
    except BadAsk as error:
        return answer({"problems": msgspec.to_builtins(error.problems)}, BAD_ASK)
    except (OverTime, RunDied) as error:
        return answer({"error": str(error)}, OVER_TIME)
    except BrokenPipeError:
        # Nobody reads on: who asked is gone.
        return 1


def bound_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_MAX_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_MAX_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _tell(done: int, of: int) -> None:
    print(msgspec.json.encode({"done": done, "of": of}).decode(), file=sys.stderr, flush=True)


def answer(document: dict[str, Any], status: int = 0) -> int:
    """Print it; the exit status."""
    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    sys.stdout.buffer.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
