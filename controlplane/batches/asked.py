"""What a tenant asks for when it makes a batch, as OpenAI's clients say it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from controlplane.batches import settings_rows as rows
from controlplane.batches.refusals import bad_batch
from policy.batches.lines import ENDPOINTS

_WINDOW = re.compile(r"([1-9][0-9]{0,5})(m|h|d)")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_METADATA_MAX = 16
# What every database can hold.
_NoNul = r"^[^\x00]*$"
_Key = Annotated[str, Meta(max_length=64, pattern=_NoNul)]
_Value = Annotated[str, Meta(max_length=512, pattern=_NoNul)]


class OutputExpiry(Struct):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=3600, le=2_592_000)]


class Asked(Struct):
    """Fields that this version does not know are passed over, as newer clients send some."""

    input_file_id: Annotated[str, Meta(min_length=1, max_length=48)]
    endpoint: str
    completion_window: str
    metadata: Annotated[dict[_Key, _Value], Meta(max_length=_METADATA_MAX)] | None = None
    output_expires_after: OutputExpiry | None = None

    @property
    def window(self) -> timedelta:
        match = _WINDOW.fullmatch(self.completion_window)
        if match is None:
            raise bad_batch('completion_window must be a time such as "24h", "90m" or "7d"')
        window = int(match[1]) * _UNITS[match[2]]
        if window > timedelta(hours=rows.WINDOW_MAX_HOURS.read()):
            raise bad_batch(
                f"completion_window may be at most {rows.WINDOW_MAX_HOURS.read()}h (HEADWORKS_BATCH_WINDOW_MAX_HOURS)"
            )
        return window


def read_asked(body: bytes) -> Asked:
    """Raises Malformed (`bad_batch`) that says what would be right."""
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except msgspec.ValidationError as error:
        raise bad_batch(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_batch("the body is not one JSON object") from None
    if asked.endpoint not in ENDPOINTS:
        raise bad_batch(f"endpoint must be one of {', '.join(ENDPOINTS)}")
    return asked
