"""`python -m simulator.calibrate < MEASURED > SPEED`: the speed of a modelled engine that is as fast as a real one.

What was measured is JSON (wire/calibration.py). Prints the speed, to be used in a what-if, and the error of every
statistic. Progress, `{"tried": …, "error": …}`, goes to standard error. Exit status: 0, or 2 with `{"problems": […]}`.
"""

from __future__ import annotations

import sys

import msgspec

from simulator.fit import fit
from simulator.what_if import ASK_MAX_BYTES, BAD_ASK, answer, bound_memory
from wire.calibration import read_json
from wire.problems import Problem
from wire.what_if import BadAsk


def main() -> int:
    bound_memory()
    text = sys.stdin.buffer.read(ASK_MAX_BYTES + 1)
    try:
        if len(text) > ASK_MAX_BYTES:
            raise BadAsk([Problem("/", "too_large", f"give at most {ASK_MAX_BYTES} bytes")])
        return answer(fit(read_json(text), _tell))
    except BadAsk as error:
        return answer({"problems": msgspec.to_builtins(error.problems)}, BAD_ASK)
    except BrokenPipeError:
        # Nobody reads on: who asked is gone.
        return 1


def _tell(tried: int, error: float) -> None:
    print(msgspec.json.encode({"tried": tried, "error": error}).decode(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
