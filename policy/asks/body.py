"""A body as JSON: its fields as they came, and refusals that name what is wrong."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate

import msgspec
from msgspec import Raw

from policy.admission import NotAdmitted
from wire.problems import cut

# As deep as serde_json reads; json of Python and pydantic, by which vLLM reads, go somewhat deeper and then fail, which
# would count as the engine's fault.
MAX_DEPTH = 128
# What takes a few milliseconds to read, in which nobody else is served; a long conversation with many tools has less.
MAX_STRINGS = 50_000
MAX_COLLECTIONS = 20_000
# Messages, or inputs of a list: as many as Azure's chats and OpenAI's embeddings take.
MAX_ITEMS = 2_048

_raw_decoder = msgspec.json.Decoder(dict[str, Raw])
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOO_MANY_STRINGS = re.compile(rb'(?:[^"]*+%b){%d}+' % (_STRING, MAX_STRINGS + 1), re.DOTALL)
# Brackets as steps up and down, in bytes with a sign.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def fields_of(body: bytes) -> dict[str, Raw]:
    """Each field's JSON as it came; of a field that is given twice, the last. Raises: NotAdmitted (`bad_json`)."""
    # Each string has two quotes, or more where it holds some.
    if body.count(b'"') > 2 * MAX_STRINGS and _TOO_MANY_STRINGS.match(body):
        raise NotAdmitted("bad_json", f"the body holds more than {MAX_STRINGS} names and texts")
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check_brackets(body)
    try:
        # msgspec skips over what it need not read without checking its encoding; an engine would not.
        body.decode()
        return _raw_decoder.decode(body)
    except UnicodeDecodeError as error:
        raise NotAdmitted("bad_json", f"the body is not UTF-8: byte {error.start} cannot be read") from None
    except msgspec.ValidationError:
        raise NotAdmitted("bad_json", "the body must be one JSON object") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotAdmitted("bad_json", f"the body is not JSON: {error}") from None


def bad_field(error: msgspec.ValidationError) -> NotAdmitted:
    """The refusal of a body in which a field has a wrong type or lies out of range."""
    said, _, where = str(error).partition(" - at `$")
    # It may repeat a name or a value of the body.
    said = cut(said)
    param = where.rstrip("`").lstrip(".") or None
    if param is None and said.startswith("Object missing required field"):
        param = said.split("`")[1]
    return NotAdmitted("bad_field", f"`{param}`: {said}" if param else said, param=param)


def _check_brackets(body: bytes) -> None:
    """Of a body that need not be JSON yet. Raises: NotAdmitted (`bad_json`)."""
    # Without escapes every other piece between quotes stands outside of strings.
    pieces = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
    steps = array("b", b"".join(pieces[::2]).translate(_STEPS, _NO_BRACKETS))
    if steps.count(1) > MAX_COLLECTIONS:
        raise NotAdmitted("bad_json", f"the body holds more than {MAX_COLLECTIONS} objects and lists")
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise NotAdmitted("bad_json", f"the body is nested deeper than {MAX_DEPTH} levels")
