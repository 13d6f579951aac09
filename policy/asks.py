"""OpenAI request bodies: what is read of them to route and bound them, and what changes before an engine sees them.

Everything else in a body is carried to the engine byte for byte. The gateway reads every request by this, the control
plane's route tester those that people ask about.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from policy.admission import NotAdmitted

Endpoint = Literal["chat", "completions"]
ENDPOINTS: dict[str, Endpoint] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}

_Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)] | None | UnsetType
_Sequences = Annotated[int, Meta(ge=1, le=10_000)] | None | UnsetType


# Tokens that a chat template adds to each message, unless a gateway is set otherwise.
MESSAGE_OVERHEAD_TOKENS = 4


class Encoder(Protocol):
    """What is used of a `tokenizers.Tokenizer`."""

    def encode_batch_fast(self, input: list[str], *, add_special_tokens: bool) -> Sequence[Sized]: ...


def token_counts(tokenizer: Encoder, texts: list[str]) -> list[int]:
    """The tokens of each text. Special tokens are the template's, which `fixed_tokens` allows for."""
    return [len(encoding) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


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
TEXT_FIELD: dict[Endpoint, str] = {"chat": "messages", "completions": "prompt"}


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
        """Raises: NotAdmitted (`bad_json`, `bad_field`, `conflicting_max_tokens`)."""
        self._raw = _decode_raw(body)
        if TEXT_FIELD[endpoint] not in self._raw:
            raise NotAdmitted("bad_field", f"`{TEXT_FIELD[endpoint]}` is missing", param=TEXT_FIELD[endpoint])
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
        raise NotAdmitted(
            "bad_field",
            "`prompt` must be a text, a list of texts, a list of token ids, or a list of such lists",
            param="prompt",
        )

    def fixed_tokens(self, message_overhead: int) -> int:
        """What is no text: token ids as they came, and what a chat template adds to each message."""
        return self.counted_tokens + self.messages * message_overhead

    def estimated_tokens(self, message_overhead: int) -> int:
        """The prompt's length without a tokenizer: UTF-8 bytes ÷ 4, rounded up for each text."""
        return self.fixed_tokens(message_overhead) + sum(-(-len(text.encode()) // 4) for text in self.texts)

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
        raise NotAdmitted("bad_json", f"the body is not UTF-8: byte {error.start} cannot be read") from None
    except msgspec.ValidationError:
        raise NotAdmitted("bad_json", "the body must be one JSON object") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotAdmitted("bad_json", f"the body is not JSON: {error}") from None


def _bad_field(error: msgspec.ValidationError) -> NotAdmitted:
    said, _, where = str(error).partition(" - at `$")
    param = where.rstrip("`").lstrip(".") or None
    if param is None and said.startswith("Object missing required field"):
        param = said.split("`")[1]
    return NotAdmitted("bad_field", f"`{param}`: {said}" if param else said, param=param)


def _asked_max_tokens(fields: _Common) -> int | None:
    """The asked output length; None when the client left it open."""
    asked = fields.max_tokens or None
    other = (fields.max_completion_tokens or None) if isinstance(fields, _Chat) else None
    if asked is not None and other is not None and asked != other:
        raise NotAdmitted(
            "conflicting_max_tokens",
            f"max_tokens is {asked} and max_completion_tokens is {other}; send one of the two",
            param="max_completion_tokens",
        )
    return other if asked is None else asked
