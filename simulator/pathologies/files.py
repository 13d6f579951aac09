"""How many files this process may open."""

from __future__ import annotations

import os
import resource


class FileLimit:
    """The soft limit of open files (RLIMIT_NOFILE): lowered close to what is open, and put back."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def hold(self, spare: int | None) -> None:
        """`spare`: files more than are open now; None: the limit that held before."""
        if spare is None:
            if self._before is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, self._before)
                self._before = None
            return
        now = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._before = self._before or now
        # The listing itself opens one.
        opened = len(os.listdir("/proc/self/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(opened + spare, now[1]), now[1]))
