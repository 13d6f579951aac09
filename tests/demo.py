"""How tests start `headworks demo`."""

from __future__ import annotations

import sys
from contextlib import suppress

from controlplane.demo.ports import Ports
from controlplane.serve import PortTaken
from tests.services import free_port

DEMO = [sys.executable, "-m", "controlplane.cli", "demo", "--port"]


def first_of_free_ports() -> int:
    """One that all those of a demo may follow."""
    while True:
        port = free_port()
        with suppress(PortTaken):
            Ports.following(port).check_free()
            return port
