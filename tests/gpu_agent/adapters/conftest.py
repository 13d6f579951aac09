from __future__ import annotations

from tests.simulator.conftest import start_engine as start_engine
