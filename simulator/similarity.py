"""Embeddings without a model: deterministic unit vectors that lie near one another for texts that share words.

A text is a bag of its words and of the three-letter parts of each, every one of them hashed to a place and a sign
(Weinberger et al., "Feature hashing for large scale multitask learning", 2009). So inflected and misspelt words still
count in part, the order of words does not, and synonyms are strangers.
"""

from __future__ import annotations

import math
import re
from zlib import crc32

DIMENSIONS = 256
_WORD = re.compile(r"\w+")
_PART_CHARACTERS = 3
_PART_WEIGHT = 0.3


def embed(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector of length 1; a text without words has one of its own."""
    vector = [0.0] * dimensions
    for word in _WORD.findall(text.lower()) or [f"\0{text}"]:
        _add(vector, word, 1.0)
        marked = f"^{word}$"
        for start in range(len(marked) - _PART_CHARACTERS + 1):
            _add(vector, marked[start : start + _PART_CHARACTERS], _PART_WEIGHT)
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0:
        # Its features have cancelled each other out.
        vector[0] = length = 1.0
    return [value / length for value in vector]


def cosine(one: list[float], other: list[float]) -> float:
    """Of two vectors of length 1."""
    return sum(map(float.__mul__, one, other))


def _add(vector: list[float], feature: str, weight: float) -> None:
    hashed = crc32(feature.encode("utf-8", "surrogatepass"))
    # Bits that the place, below 2^16, does not take.
    vector[hashed % len(vector)] += weight if hashed >> 31 else -weight
