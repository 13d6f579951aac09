"""Which engine has read the beginning of a prompt before: the same leading text goes where its KV cache is.

The leading text is cut into blocks; each is known by a hash of itself and of all before it, so that one look-up of the
longest known chain finds the engine. Hashes are of this process alone. Source: seed 1, section 4 (prefix caching).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

# Some 250 tokens, 16 blocks of an engine: a shared text shorter than this saves no time worth a detour.
BLOCK_CHARACTERS = 1_024
# A system prompt and tools; what follows differs, or is found with them.
MOST_BLOCKS = 16


def leading_blocks(
    texts: Iterable[str], block_characters: int = BLOCK_CHARACTERS, most: int = MOST_BLOCKS
) -> list[int]:
    """Hashes of the leading text of `texts` by whole blocks, each with all that is before it; at most `most`."""
    wanted = block_characters * most
    parts: list[str] = []
    length = 0
    for text in texts:
        parts.append(text[: max(0, wanted - length)])
        length += len(parts[-1]) + 1
        if length > wanted:
            break
    # Between texts stands what is in none, so that "ab", "c" is not "a", "bc".
    joined = "\0".join(parts)
    hashes: list[int] = []
    before = 0
    for start in range(0, min(len(joined), wanted) - block_characters + 1, block_characters):
        before = hash((before, joined[start : start + block_characters]))
        hashes.append(before)
    return hashes


class PrefixTable:
    """Leading blocks → the engine that read them last; the ones that were used least recently go first."""

    def __init__(self, most_blocks: int) -> None:
        self._most = most_blocks
        self._engines: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._engines)

    def find(self, blocks: Sequence[int]) -> str | None:
        """The engine of the longest known beginning."""
        return next((engine for block in reversed(blocks) if (engine := self._engines.get(block)) is not None), None)

    def put(self, blocks: Sequence[int], engine: str) -> None:
        # The first block last: most requests share it, so it must outlive those after it.
        for block in reversed(blocks):
            self._engines[block] = engine
            self._engines.move_to_end(block)
        while len(self._engines) > self._most:
            self._engines.popitem(last=False)
