"""One request body, read by its API's module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from policy.admission import NotAdmitted
from policy.asks import chat, completions, embeddings, messages, rerank, responses
from policy.asks.api import Api, Endpoint
from policy.asks.body import bad_field, fields_of
from policy.asks.counting import PromptTokens
from wire.snapshot import Model

APIS: dict[Endpoint, Api] = {
    "chat": chat.API,
    "completions": completions.API,
    "responses": responses.API,
    "embeddings": embeddings.API,
    "rerank": rerank.API,
    "messages": messages.API,
}
ENDPOINTS: dict[str, Endpoint] = {api.path: endpoint for endpoint, api in APIS.items()}
TEXT_FIELD: dict[Endpoint, str] = {endpoint: api.text_field for endpoint, api in APIS.items()}

# Not sent: the engine's order is the gateway's to say, and llama.cpp lets these win over `max_tokens` and `n`.
_NOT_THE_CLIENTS = ("priority", "n_predict", "n_cmpl")
# As many as the longest context has, and some more.
_LENGTH_DIGITS = 12
_raw_decoder = msgspec.json.Decoder(dict[str, Raw])
_options_decoder = msgspec.json.Decoder(dict[str, Raw] | None)


class Ask:
    """One request body, read. `texts` are what a tokenizer counts; `counted_tokens` came as token ids.

    `messages` counts what a chat template would add its marks to, `sequences` what holds KV cache at once.
    """

    __slots__ = (
        "_raw",
        "_reading",
        "api",
        "asked_max_tokens",
        "counted_tokens",
        "endpoint",
        "messages",
        "model",
        "sequences",
        "stream",
        "texts",
        "wants_usage",
    )

    def __init__(self, endpoint: Endpoint, body: bytes) -> None:
        """Raises: NotAdmitted (`bad_json`, `bad_field`, `conflicting_max_tokens`)."""
        self.endpoint, self.api = endpoint, APIS[endpoint]
        self._raw = fields_of(body)
        if self.api.text_field not in self._raw:
            raise NotAdmitted("bad_field", f"`{self.api.text_field}` is missing", param=self.api.text_field)
        try:
            fields = self.api.decoder.decode(body)
        except msgspec.ValidationError as error:
            raise bad_field(error) from None
        self.model: str = fields.model
        reading = self._reading = self.api.read(fields)
        self.texts, self.messages, self.counted_tokens = reading.texts, reading.messages, reading.counted_tokens
        self.asked_max_tokens, self.sequences = reading.asked_max_tokens, reading.sequences
        self.stream, self.wants_usage = reading.stream, reading.wants_usage

    @property
    def fields(self) -> Mapping[str, Raw]:
        """The JSON of every field as it came; of one that was given twice, the last."""
        return self._raw

    @property
    def inputs(self) -> int:
        """How many prompts the engine reads by themselves, each within the model's context."""
        return self._reading.inputs

    @property
    def generates(self) -> bool:
        """Whether there is an output to bound; embeddings and rerank have none."""
        return self.api.output_field is not None

    def max_tokens_or(self, default: int) -> int:
        """The largest output of one sequence as it is asked for; `default` where the client left it open."""
        return (self.asked_max_tokens or default) if self.generates else 0

    def raw(self, *path: str) -> bytes:
        """The JSON of a field as it came, `raw("text", "format")` for one within another; empty where there is none."""
        fields, found = self._raw, b""
        for depth, name in enumerate(path):
            if depth:
                try:
                    fields = _raw_decoder.decode(found)
                except msgspec.ValidationError:
                    return b""
            found = bytes(fields.get(name, b""))
            if not found:
                return b""
        return found

    def names_any(self, fields: frozenset[str]) -> bool:
        """Whether the body has one of the fields, whatever is in it."""
        return not fields.isdisjoint(self._raw)

    @property
    def tools(self) -> bytes:
        """The JSON of the tools that the model may call; empty where there are none."""
        return self.raw("tools")

    @property
    def response_format(self) -> bytes:
        """The JSON of the form that the answer must have, whatever the API calls it; empty where there is none."""
        return self.raw(*self.api.format_in)

    def prompt_tokens(self, text_counts: Sequence[int], message_overhead: int) -> PromptTokens:
        """Of the tokens of each of `texts`, in their order: with token ids as they came, and each message's marks."""
        total = sum(text_counts) + self.counted_tokens + self.messages * message_overhead
        if not self._reading.separate:
            return PromptTokens(total, total)
        if not self._reading.after_first:
            return PromptTokens(total, max((*text_counts, self._reading.longest_ids)))
        first, *others = text_counts
        return PromptTokens(total + first * (len(others) - 1), first + max(others))

    def estimated_tokens(self, message_overhead: int) -> PromptTokens:
        """The prompt's length without a tokenizer: UTF-8 bytes ÷ 4, rounded up for each text."""
        return self.prompt_tokens([-(-len(text.encode()) // 4) for text in self.texts], message_overhead)

    @property
    def asks_to_shorten(self) -> bool:
        """Whether an engine that knows the field shortens the prompt. Others read the whole of it."""
        return self._shortening not in (b"", b"null", b'"disabled"')

    @property
    def _shortening(self) -> bytes:
        return b"" if self.api.shortened_by is None else self.raw(self.api.shortened_by)

    def shortened(self, prompt: PromptTokens, model: Model) -> PromptTokens:
        """What is left of a prompt that vLLM shortens, since the body `asks_to_shorten`: it leaves the output its room.

        Source: vLLM's `truncate_prompt_tokens`, of which -1 is as much as fits, and `truncation` of OpenAI's responses.
        """
        asked = self._shortening
        output = min(self.max_tokens_or(model.default_max_tokens), model.max_tokens)
        longest = min(prompt.longest, max(1, model.max_context_tokens - output))
        if asked.isdigit():
            longest = min(longest, int(asked[:_LENGTH_DIGITS]))
        return PromptTokens(min(prompt.total, longest * self._reading.inputs), longest)

    def for_engine(self, served_model: str, max_tokens: int, priority: int | None = None) -> bytes:
        """The body to send: the engine's model name, a bounded output, and usage asked for on streams.

        A field that was given twice is sent once, as it was read. `priority`: the engine's, lower is served first; what
        a client says of it is not sent.
        """
        changed = dict(self._raw)
        for name in (*self.api.dropped, *_NOT_THE_CLIENTS):
            changed.pop(name, None)
        changed["model"] = Raw(msgspec.json.encode(served_model))
        if self.api.output_field is not None:
            changed[self.api.output_field] = Raw(b"%d" % max_tokens)
        if priority is not None:
            changed["priority"] = Raw(b"%d" % priority)
        if self.stream and self.api.forces_usage:
            options = _options_decoder.decode(changed.get("stream_options", Raw(b"null"))) or {}
            if not self.wants_usage:
                # It says nothing by itself; with what is asked for here every event would tell its usage.
                options.pop("continuous_usage_stats", None)
            options["include_usage"] = Raw(b"true")
            changed["stream_options"] = Raw(msgspec.json.encode(options))
        return msgspec.json.encode(changed)
