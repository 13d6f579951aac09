"""All that a gateway has of batches, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway import settings
from gateway.batches.link import Link
from gateway.batches.rooms import Rooms
from gateway.batches.runner import Runner
from policy.batches.room import Options
from wire.target import TargetClient

if TYPE_CHECKING:
    from gateway.state import Gateway


class Batches:
    """`link`: the control plane. `rooms`: where lines wait. `runner`: takes them and runs them."""

    def __init__(self, gateway: Gateway, client: TargetClient) -> None:
        self.priority_class = settings.BATCH_CLASS.read()
        self.link = Link(client)
        options = Options(settings.BATCH_HEADROOM_PERMILLE.read(), settings.BATCH_TTFT_PERCENT.read())
        self.rooms = Rooms(gateway.pools, self.priority_class, options, gateway.now_ms)
        self.runner = Runner(gateway, self.link, self.rooms)
