"""A model's tokenizer, as engines count with it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tokenizers import Tokenizer

# What begins and ends a text is told by the tokenizer's own post-processor where it adds it; these are the names that
# templates of the rest go by. For a count it matters that there is one, not which.
_BEGINNINGS: Final = ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "[BOS]")
_ENDS: Final = ("</s>", "<|eot_id|>", "<|im_end|>", "<eos>", "<|endoftext|>", "[EOS]")
_LETTER = "a"
# More than a long conversation has turns. A client can spell out special tokens by the hundred thousand, and each piece
# costs some 10 µs.
_MAX_PIECES = 4_096
# The library holds some 160 bytes a token until it has all of a batch: of a body of 8 MiB, more than 1 GB.
_AT_ONCE_CHARACTERS = 256 * 1024


class Batch(NamedTuple):
    """What is counted at once: `parts` of texts, and the index of the text that each is a part of."""

    indices: list[int]
    parts: list[str]


class ModelTokenizer:
    """`bos`, `eos`: the special tokens' texts, empty where the model has none.

    `added_tokens`: what it adds to a text that no template has rendered; `added_to_pair`: to two texts in one prompt,
    such as a question and a document.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Files of embedding models cut and fill up what they encode; engines set that aside, too.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.added_tokens: int = tokenizer.num_special_tokens_to_add(False)
        self.added_to_pair: int = tokenizer.num_special_tokens_to_add(True)
        # Text is always cut at these, whatever stands around them.
        self._special = {
            token.content
            for token in tokenizer.get_added_tokens_decoder().values()
            if token.special and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        }
        self.bos, self.eos = self._ends()

    @classmethod
    def read(cls, data: bytes) -> ModelTokenizer:
        """Of a Hugging Face tokenizer.json. Raises: Exception, of which the library has no other kind."""
        return cls(Tokenizer.from_buffer(data))

    def counts(self, texts: list[str]) -> list[int]:
        """The tokens of each text. A special token that is spelled out is one; none is added.

        Whatever the length: see `batches`, by which who has other work to do counts a part at a time.
        """
        counts = [0] * len(texts)
        for batch in batches(texts):
            for index, tokens in zip(batch.indices, self.counts_of(batch), strict=True):
                counts[index] += tokens
        return counts

    def counts_of(self, batch: Batch) -> list[int]:
        """The tokens of each of its parts."""
        encodings = self._tokenizer.encode_batch_fast(batch.parts, add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    def special_in(self, text: str) -> set[str]:
        """The special tokens that are spelled out in a text."""
        return {token for token in self._special if token in text}

    def _ends(self) -> tuple[str, str]:
        whole = self._tokenizer.encode(_LETTER)
        plain = len(self._tokenizer.encode(_LETTER, add_special_tokens=False))
        before = whole.special_tokens_mask.index(0) if 0 in whole.special_tokens_mask else 0
        bos = whole.tokens[before - 1] if before else _first(_BEGINNINGS, self._special)
        eos = whole.tokens[before + plain] if len(whole) > before + plain else _first(_ENDS, self._special)
        return bos, eos


def cutter(specials: Iterable[str]) -> re.Pattern[str] | None:
    """What `pieces` cuts by; None where there is nothing to cut at."""
    longest_first = sorted(filter(None, specials), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def pieces(text: str, cut: re.Pattern[str] | None) -> list[str]:
    """The text cut before each special token. The tokens of the pieces are those of the text, whatever the tokenizer.

    Tokenizers set special tokens apart before anything else, so that no token reaches over one; each piece keeps the
    one that it begins with, since some treat a text's first word in another way. A turn of a chat is a piece or two:
    system prompts and earlier turns come again, and are counted once. What follows on very many is one piece.
    """
    if cut is None:
        return [text]
    marks = itertools.islice(cut.finditer(text), _MAX_PIECES)
    starts = [0, *(found.start() for found in marks if found.start()), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(starts) if end > start]


def batches(texts: Sequence[str]) -> Iterator[Batch]:
    """Texts in batches of at most 262,144 characters; a longer one in parts of so many, cut before spaces.

    The tokens of the parts are those of the text, to within a few a part.
    """
    batch, characters = Batch([], []), 0
    for index, text in enumerate(texts):
        for part in _parts(text):
            if batch.parts and characters + len(part) > _AT_ONCE_CHARACTERS:
                yield batch
                batch, characters = Batch([], []), 0
            batch.indices.append(index)
            batch.parts.append(part)
            characters += len(part)
    if batch.parts:
        yield batch


def _parts(text: str) -> Iterator[str]:
    """Most tokenizers' words begin with their space."""
    begin = 0
    while len(text) - begin > _AT_ONCE_CHARACTERS:
        end = begin + _AT_ONCE_CHARACTERS
        space = text.rfind(" ", begin + _AT_ONCE_CHARACTERS // 2, end)
        end = end if space < 0 else space
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _first(names: Iterable[str], there: set[str]) -> str:
    return next((name for name in names if name in there), "")
