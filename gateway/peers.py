"""How many gateways were alive at last, kept on disk: a restart alone must not take every gateway's share."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from wire.files import read_bounded, write_private
from wire.messages import PeersEvent

log = logging.getLogger("headworks.gateway.peers")
_FILE_NAME = "peers.json"
_FILE_LIMIT_BYTES = 1024


def kept_live_gateways(state_dir: Path) -> int:
    """The last number heard; 1 where none was kept or the file is damaged."""
    try:
        return msgspec.json.decode(
            read_bounded(state_dir / _FILE_NAME, _FILE_LIMIT_BYTES), type=PeersEvent
        ).live_gateways
    except FileNotFoundError:
        return 1
    except (OSError, ValueError) as error:
        log.warning("the number of live gateways is not known, 1 is assumed: %s", error)
        return 1


def keep_live_gateways(state_dir: Path, live_gateways: int) -> None:
    try:
        write_private(state_dir / _FILE_NAME, msgspec.json.encode(PeersEvent(live_gateways)))
    except OSError as error:
        log.warning("the number of live gateways is not kept on disk: %s", error)
