"""OpenAI request bodies: what the gateway must read of them, and what it changes before an engine sees them.

Everything else in a body is carried to the engine byte for byte.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.refusals import Refused

Endpoint = Literal["chat", "completions"]
ENDPOINTS: dict[str, Endpoint] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}

_Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)] | None | UnsetType
_Sequences = Annotated[int, Meta(ge=1, le=10_000)] | None | UnsetType


class _Part(Struct):
    text: str | None = None


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: Raw = Raw(b"")


class _Common(Struct):
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    max_tokens: _Tokens = UNSET
    n: _Sequences = UNSET
    best_of: _Sequences = UNSET
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None


class _Chat(_Common):
    messages: Annotated[list[_Message], Meta(min_length=1)] = msgspec.field(default_factory=list)
    max_completion_tokens: _Tokens = UNSET
    tools: Raw = Raw(b"")


class _Completion(_Common):
    prompt: Raw = Raw(b"null")


_raw_decoder = msgspec.json.Decoder(dict[str, Raw])
_decoders: dict[Endpoint, msgspec.json.Decoder[Any]] = {
    "chat": msgspec.json.Decoder(_Chat),
    "completions": msgspec.json.Decoder(_Completion),
}
_TokenIds = Annotated[list[Annotated[int, Meta(ge=0, le=2**31 - 1)]], Meta(min_length=1)]
# Tried in turn: a list of millions of token ids is checked without a loop in Python.
_prompt_decoders: tuple[msgspec.json.Decoder[Any], ...] = (
    msgspec.json.Decoder(str),
    msgspec.json.Decoder(_TokenIds),
    msgspec.json.Decoder(Annotated[list[str], Meta(min_length=1)]),
    msgspec.json.Decoder(Annotated[list[_TokenIds], Meta(min_length=1)]),
)
_text_key: dict[Endpoint, str] = {"chat": "messages", "completions": "prompt"}


class Ask:
    """One request body, read. `texts` are what a tokenizer counts; `counted_tokens` came as token ids."""

    __slots__ = (
        "_raw",
        "asked_max_tokens",
        "counted_tokens",
        "messages",
        "model",
        "sequences",
        "stream",
        "texts",
        "wants_usage",
    )

    def __init__(self, endpoint: Endpoint, body: bytes) -> None:
        """Raises: Refused (`bad_json`, `bad_field`, `conflicting_max_tokens`)."""
        self._raw = _decode_raw(body)
        if _text_key[endpoint] not in self._raw:
            raise Refused("bad_field", f"`{_text_key[endpoint]}` is missing", param=_text_key[endpoint])
        try:
            fields = _decoders[endpoint].decode(body)
        except msgspec.ValidationError as error:
            raise _bad_field(error) from None
        self.model: str = fields.model
        self.stream = bool(fields.stream)
        self.wants_usage = bool((fields.stream_options or {}).get("include_usage"))
        self.texts: list[str] = []
        self.messages = self.counted_tokens = 0
        prompts = 1
        if isinstance(fields, _Chat):
            self._read_messages(fields)
        else:
            prompts = self._read_prompt(fields.prompt)
        self.asked_max_tokens = _asked_max_tokens(fields)
        # An engine that honours best_of generates that many; one that ignores it generates n.
        self.sequences = max(fields.n or 1, fields.best_of or 1) * prompts

    def _read_messages(self, chat: _Chat) -> None:
        self.messages = len(chat.messages)
        for message in chat.messages:
            self.texts.append(message.role)
            if isinstance(message.content, str):
                self.texts.append(message.content)
            else:
                self.texts += [part.text for part in message.content or () if part.text]
            if calls := bytes(message.tool_calls):
                self.texts.append(calls.decode())
        if tools := bytes(chat.tools):
            self.texts.append(tools.decode())

    def _read_prompt(self, prompt: Raw) -> int:
        """The number of prompts: OpenAI takes a text, token ids, or a list of either."""
        for decoder in _prompt_decoders:
            try:
                decoded = decoder.decode(prompt)
            except msgspec.ValidationError:
                continue
            if isinstance(decoded, str):
                self.texts.append(decoded)
                return 1
            if isinstance(decoded[0], int):
                self.counted_tokens = len(decoded)
                return 1
            if isinstance(decoded[0], str):
                self.texts += decoded
            else:
                self.counted_tokens = sum(map(len, decoded))
            return len(decoded)
        raise Refused(
            "bad_field",
            "`prompt` must be a text, a list of texts, a list of token ids, or a list of such lists",
            param="prompt",
        )

    def for_engine(self, served_model: str, max_tokens: int) -> bytes:
        """The body to send: the engine's model name, a bounded output, and usage asked for on streams."""
        changed = dict(self._raw)
        changed.pop("max_completion_tokens", None)
        changed["model"] = Raw(msgspec.json.encode(served_model))
        changed["max_tokens"] = Raw(b"%d" % max_tokens)
        if self.stream:
            options = msgspec.json.decode(changed.get("stream_options", Raw(b"null"))) or {}
            changed["stream_options"] = Raw(msgspec.json.encode({**options, "include_usage": True}))
        return msgspec.json.encode(changed)


def _decode_raw(body: bytes) -> dict[str, Raw]:
    try:
        # msgspec skips over what it need not read without checking its encoding; an engine would not.
        body.decode()
        return _raw_decoder.decode(body)
    except UnicodeDecodeError as error:
        raise Refused("bad_json", f"the body is not UTF-8: byte {error.start} cannot be read") from None
    except msgspec.ValidationError:
        raise Refused("bad_json", "the body must be one JSON object") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused("bad_json", f"the body is not JSON: {error}") from None


def _bad_field(error: msgspec.ValidationError) -> Refused:
    said, _, where = str(error).partition(" - at `$")
    param = where.rstrip("`").lstrip(".") or None
    if param is None and said.startswith("Object missing required field"):
        param = said.split("`")[1]
    return Refused("bad_field", f"`{param}`: {said}" if param else said, param=param)


def _asked_max_tokens(fields: _Common) -> int | None:
    """The asked output length; None when the client left it open."""
    asked = fields.max_tokens or None
    other = (fields.max_completion_tokens or None) if isinstance(fields, _Chat) else None
    if asked is not None and other is not None and asked != other:
        raise Refused(
            "conflicting_max_tokens",
            f"max_tokens is {asked} and max_completion_tokens is {other}; send one of the two",
            param="max_completion_tokens",
        )
    return other if asked is None else asked
