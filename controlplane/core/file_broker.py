"""The broker of files, where there is no Redis: kombu's, whose messages appear whole or not at all."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """kombu writes a message where workers already look for it: one that reads half of it ends with an error."""

    def _put(self, queue: str, payload: Any, **options: Any) -> None:  # type: ignore[override]
        folder = Path(self.data_folder_out)
        # By time, as workers take them in the order of their names; another name meanwhile, that none of them reads.
        name = f"{monotonic_ns() // 1_000_000}_{uuid.uuid4()}.{queue}.msg"
        unfinished = folder / f"{name}.tmp"
        try:
            unfinished.write_bytes(dumps(payload).encode())  # type: ignore[no-untyped-call]
            os.replace(unfinished, folder / name)
        except OSError as error:
            # A full disk would else be left with one more file by each try.
            with suppress(OSError):
                unfinished.unlink()
            raise ChannelError(f"no message can be written to {folder}: {error}") from error


class Transport(filesystem.Transport):
    """`broker_transport = "controlplane.core.file_broker:Transport"`."""

    Channel = Channel
