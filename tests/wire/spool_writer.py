"""Puts numbered records into a spool until it is killed, and says each number once `put` has returned for it.

`python -m tests.wire.spool_writer FILE`
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from wire.spool import Spool

if __name__ == "__main__":
    spool = Spool(Path(sys.argv[1]), limit_bytes=64 << 20)
    for number in itertools.count():
        spool.put([b"%d " % number + b"x" * 500])
        print(number, flush=True)
