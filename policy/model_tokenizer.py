"""A model's tokenizer, as engines count with it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Final

from tokenizers import Tokenizer

# What begins and ends a text is told by the tokenizer's own post-processor where it adds it; these are the names that
# templates of the rest go by. For a count it matters that there is one, not which.
_BEGINNINGS: Final = ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "[BOS]")
_ENDS: Final = ("</s>", "<|eot_id|>", "<|im_end|>", "<eos>", "<|endoftext|>", "[EOS]")
_LETTER = "a"


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
        """The tokens of each text. A special token that is spelled out is one; none is added."""
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

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
    system prompts and earlier turns come again, and are counted once.
    """
    if cut is None:
        return [text]
    starts = [0, *(found.start() for found in cut.finditer(text) if found.start()), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(starts) if end > start]


def _first(names: Iterable[str], there: set[str]) -> str:
    return next((name for name in names if name in there), "")
