"""Which requests ask a question that others may ask in other words, and which questions are somebody's own.

No rule finds all that is personal. This one is strict where a look is enough, so it also leaves out questions that are
nobody's own: numbers, addresses and names, by their form, and words by which people speak of themselves, in English and
Turkish. What it cannot see (a name in lower case, a possessive ending, another language) is held by two further rules:
a tenant is answered from its own questions alone, and only with answers that somebody approved.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.caches.keys import has

# One question, and the operator's words before it.
MESSAGES_MAX = 3
_OPERATORS = ("system", "developer")
# Fields that name who asks, or that let the answer be more than words.
_BARRING_FIELDS = ("tools", "functions", "user", "safety_identifier", "audio", "modalities")

# As `_plain` writes them. "Me" and "us" are missing: most who say "tell me" ask nothing of themselves.
_OWN_WORDS = frozenset(
    (
        *("my", "mine", "myself", "our", "ours", "i'm", "i've", "i'd"),
        *("benim", "bizim", "beni", "bende", "benden", "bizi", "adim", "kendim"),
        *("mr", "mrs", "ms", "dr", "prof", "sayin", "bay", "bayan", "hanim", "bey"),
    )
)
_OF_ONESELF = re.compile(r"\bi (?:am|have|was|had)\b")
_E_MAIL_OR_HANDLE = re.compile(r"\S@\S|(?<!\S)@\w")
# Accounts, telephones, cards, national ids, IBANs, order numbers: five digits or more, however they are grouped.
_NUMBER = re.compile(r"\d(?:[\s./()-]{0,2}\d){4,}|\b[A-Z]{2}\d{2}\b")
_IDENTIFIER = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]{12,}\b")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


class _Part(Struct, forbid_unknown_fields=True):
    type: str
    text: str


class _Message(Struct, forbid_unknown_fields=True):
    """A message with a name, calls or anything else in it is more than a question."""

    role: str
    content: str | list[_Part] | UnsetType = UNSET


_decoder = msgspec.json.Decoder(list[_Message])


@dataclass(frozen=True, slots=True)
class Question:
    """`text`: the user's words; `folded`: as they are compared; `digest`: SHA-256 of that.

    `before`: the operator's messages, as JSON.
    """

    text: str
    folded: str
    digest: bytes
    before: bytes


def question_in(fields: Mapping[str, Raw], characters_max: int) -> Question | None:
    """The question that a chat body asks; None where it is no single question, or is somebody's own."""
    if has(fields, *_BARRING_FIELDS):
        return None
    try:
        messages = _decoder.decode(fields["messages"])
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    *before, last = messages or [_Message("")]
    if last.role != "user" or len(before) >= MESSAGES_MAX or any(m.role not in _OPERATORS for m in before):
        return None
    text = _text(last)
    if not text or len(text) > characters_max or is_personal(text):
        return None
    folded = fold(text)
    return Question(text, folded, hashlib.sha256(folded.encode()).digest(), msgspec.json.encode(before))


def _text(message: _Message) -> str:
    content = message.content
    if isinstance(content, str):
        return content.strip()
    if content is UNSET or any(part.type != "text" for part in content):
        return ""
    return "\n".join(part.text for part in content).strip()


def is_personal(text: str) -> bool:
    """Whether a question looks like somebody's own. What it cannot tell: see the module."""
    if _E_MAIL_OR_HANDLE.search(text) or _NUMBER.search(text) or _IDENTIFIER.search(text):
        return True
    words = [word.replace("’", "'") for word in _WORD.findall(text)]
    plain = [_plain(word) for word in words]
    return not _OWN_WORDS.isdisjoint(plain) or _OF_ONESELF.search(" ".join(plain)) is not None or _has_a_name(words)


def _plain(word: str) -> str:
    """In capitals, a Turkish word has lost what told its two letters I apart."""
    return fold(word).replace("ı", "i")


def _has_a_name(words: list[str]) -> bool:
    """Two words in a row that begin with a capital, as a person's first and last name do."""
    capitals = [len(word) > 1 and word[0].isupper() and word[1:].islower() for word in words]
    return any(first and second for first, second in pairwise(capitals))


def fold(text: str) -> str:
    """A text without what does not tell words apart: case, width, white space, and the dots of a Turkish I."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("i\u0307", "i")
    return " ".join(folded.split())


def is_time_bound(question: Question, phrases: Iterable[str]) -> bool:
    """Whether a word of the question begins with one of the phrases: "price" is found in "prices", not in "reprice"."""
    pattern = _beginnings(frozenset(phrases))
    return pattern is not None and pattern.search(question.folded) is not None


@lru_cache(maxsize=256)
def _beginnings(phrases: frozenset[str]) -> re.Pattern[str] | None:
    alternatives = "|".join(sorted(re.escape(fold(phrase)) for phrase in phrases if fold(phrase)))
    return re.compile(rf"(?<!\w)(?:{alternatives})") if alternatives else None
