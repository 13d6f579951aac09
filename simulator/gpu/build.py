"""`python -m simulator.gpu.build OUT_DIR`: compile the simulated NVML library, for LD_LIBRARY_PATH=OUT_DIR."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# The name under which callers of NVML load it.
LIBRARY = "libnvidia-ml.so.1"
_NO_COMPILER = 3
_FLAGS = (
    "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread",
    # Only NVML's own names may be seen: ours must not meet those of the program that loads it.
    "-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", "-Wl,-z,defs",
)  # fmt: skip


class NoCompiler(Exception):
    """This machine has no C compiler; the message says what to install."""


class BuildFailed(Exception):
    """The compiler refused; the message is what it said."""


def build(folder: Path, *, extra_flags: Sequence[str] = ()) -> Path:
    """Compile into `folder` and return the library's path. One that was there before is replaced whole.

    Raises: NoCompiler, BuildFailed.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("no C compiler (cc) here: install gcc, or let the agent read the state file itself")
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(Path(__file__).parent.glob("*.c"))
    # Processes that have the old one open keep it: the new one comes by a rename.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / LIBRARY
        done = subprocess.run(
            [compiler, *_FLAGS, *extra_flags, "-o", fresh, *sources], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BuildFailed(done.stderr)
        os.replace(fresh, folder / LIBRARY)
    return folder / LIBRARY


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 built, 1 the compiler refused, 3 there is no compiler."""
    parser = argparse.ArgumentParser(prog="python -m simulator.gpu.build", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="OUT_DIR")
    try:
        print(build(parser.parse_args(argv).folder))
    except NoCompiler as error:
        print(f"simulator.gpu.build: {error}", file=sys.stderr)
        return _NO_COMPILER
    except BuildFailed as error:
        print(f"simulator.gpu.build: the compiler refused:\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
