"""Whether NVML and this process mean the same by a process id."""

from __future__ import annotations

import os

# Inode of the first PID namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


def sees_host_pids() -> bool:
    """Whether this process numbers processes as the host does, and so as NVML does, which knows of no containers."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False
