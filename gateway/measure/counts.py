"""Token counts that were found before: system prompts and earlier turns come again and again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

# A digest takes less memory than a longer text, and less time than to count one.
_DIGEST_ABOVE_CHARACTERS = 256
_DIGEST_BYTES = 16

Key = tuple[str, str | bytes]


def key_of(tokenizer: str, text: str) -> Key:
    """What a text is remembered by, for the tokenizer of this SHA-256."""
    if len(text) <= _DIGEST_ABOVE_CHARACTERS:
        return tokenizer, text
    return tokenizer, hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


class Counts:
    """The counts of the `capacity` texts that were asked for last."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._counts: OrderedDict[Key, int] = OrderedDict()

    def get(self, key: Key) -> int | None:
        count = self._counts.get(key)
        if count is not None:
            self._counts.move_to_end(key)
        return count

    def put(self, key: Key, count: int) -> None:
        self._counts[key] = count
        if len(self._counts) > self._capacity:
            self._counts.popitem(last=False)
