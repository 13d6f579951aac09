"""What a simulated engine will answer, decided when the request arrives: how many tokens, which ones, why it ends.

The answer depends on the seed, the prompt and the choice's index alone, as a model at temperature 0: the same
request gets the same answer in any order of arrival.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec
from tokenizers import Tokenizer

from simulator.answers import ChoicesShape, FinishReason, Shape, json_text
from simulator.lengths import LengthDistribution
from simulator.messages import MessagesRequest, MessagesShape
from simulator.requests import (
    MAX_CHOICES,
    ApiError,
    ChatRequest,
    CompletionRequest,
    JsonSchema,
    Message,
    bad_request,
    decode,
    model_not_found,
)
from simulator.responses import ResponsesRequest, ResponsesShape
from simulator.schema import SchemaNotSimulated, obeying_text
from simulator.tokenizer import Words, chat_prompt

Api = Literal["chat", "completions", "responses", "messages"]
_SHAPES: dict[Api, Callable[[str], Shape]] = {
    "chat": lambda model: ChoicesShape(True, model),
    "completions": lambda model: ChoicesShape(False, model),
    "responses": ResponsesShape,
    "messages": MessagesShape,
}


@dataclass(frozen=True)
class Choice:
    """One answer to be made of `tokens`."""

    prompt_tokens: int
    tokens: list[int]
    finish_reason: FinishReason
    max_tokens: int


@dataclass(frozen=True)
class Job:
    """One request, understood. `prompt_tokens` counts each prompt once, as in the usage that is reported.

    `schema`: what an answer must obey, as JSON; empty where there is nothing.
    """

    shape: Shape
    stream: bool
    include_usage: bool
    prompt_tokens: int
    choices: list[Choice]
    schema: bytes = b""

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)


class Generator:
    """Turns request bodies into jobs. Holds no state that a request changes, so any thread may call it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        served_names: list[str],
        max_model_len_tokens: int,
        lengths: LengthDistribution,
        seed: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._words = Words(tokenizer)
        self._json_texts = {token: json_text(text) for token, text in self._words.texts.items()}
        self.served_names = served_names
        self._shapes = {(api, name): make(name) for api, make in _SHAPES.items() for name in served_names}
        self._max_model_len_tokens = max_model_len_tokens
        self._lengths = lengths
        self._seed = seed
        # A fault may have it pass over `response_format`.
        self.obeys_formats = True

    def add_name(self, name: str) -> None:
        """Answer requests for `name`, too, as for an adapter that was loaded."""
        self._shapes |= {(api, name): make(name) for api, make in _SHAPES.items()}

    def remove_name(self, name: str) -> None:
        for api in _SHAPES:
            del self._shapes[api, name]

    def tokenize(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def tokenize_chat(self, messages: list[Message]) -> list[int]:
        return self.tokenize(chat_prompt([(message.role, message.text) for message in messages]))

    def token_text(self, token: int) -> bytes:
        """The text of an answer's token, as the inside of a JSON string."""
        known = self._json_texts.get(token)
        return json_text(self._tokenizer.decode([token])) if known is None else known

    def text_of(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens)
        return text

    def model_of(self, asked: str | None) -> str:
        """The name that a request is answered under. Raises: ApiError for one that is not served."""
        model = self.served_names[0] if asked is None else asked
        if ("chat", model) not in self._shapes:
            raise model_not_found(model)
        return model

    def plan(self, api: Api, body: bytes) -> Job:
        """Read, measure and answer one request.

        Raises: ApiError naming the field that is wrong, or the prompt that does not fit the model's length.
        """
        request = _read(api, body)
        shape = self._shapes[api, self.model_of(request.model)]
        if isinstance(request, ChatRequest):
            prompts = [self.tokenize_chat(request.messages)]
        else:
            prompts = [self.prompt_ids(prompt, "prompt") for prompt in request.prompts()]
        if len(prompts) * request.choices > MAX_CHOICES:
            raise bad_request(f"n times the number of prompts must be at most {MAX_CHOICES}", "n")
        choices = [self._choice(prompt, index, request) for prompt in prompts for index in range(request.choices)]
        prompt_tokens = sum(map(len, prompts))
        return Job(shape, bool(request.stream), request.include_usage, prompt_tokens, choices, self._schema_of(request))

    def _schema_of(self, request: ChatRequest | CompletionRequest) -> bytes:
        form = request.response_format
        if form is None or form.json_schema is None or not self.obeys_formats:
            return b""
        return msgspec.json.encode(form.json_schema.schema)

    def prompt_ids(self, prompt: str | list[int], field: str) -> list[int]:
        """Raises: ApiError for a prompt of no tokens, of unknown ones, or of too many to be read."""
        if isinstance(prompt, str):
            ids = self.tokenize(prompt)
        else:
            size = self._tokenizer.get_vocab_size()
            if any(not 0 <= token < size for token in prompt):
                raise bad_request(f"{field} holds a token id outside the vocabulary (0 to {size - 1})", field)
            ids = prompt
        if not ids:
            raise bad_request(f"{field} must hold at least one token", field)
        self.check_length(len(ids), field)
        return ids

    def check_length(self, prompt_tokens: int, field: str) -> None:
        if prompt_tokens > self._max_model_len_tokens:
            raise self._too_long(prompt_tokens, field)

    def _too_long(self, prompt_tokens: int, field: str) -> ApiError:
        return bad_request(
            f"This model's maximum context length is {self._max_model_len_tokens} tokens. However, your "
            f"request has {prompt_tokens} input tokens. Please reduce the length of the input.",
            field,
        )

    def _choice(self, prompt: list[int], index: int, request: ChatRequest | CompletionRequest) -> Choice:
        room = self._max_model_len_tokens - len(prompt)
        if room < 1:
            raise self._too_long(len(prompt), "messages" if isinstance(request, ChatRequest) else "prompt")
        asked = request.asked_tokens
        if asked is not None and asked > room:
            named = isinstance(request, ChatRequest) and request.max_completion_tokens is not None
            raise bad_request(
                f"max_tokens is too large: {asked}. This model's maximum context length is "
                f"{self._max_model_len_tokens} tokens and your request has {len(prompt)} input tokens, so at most "
                f"{room} are left.",
                "max_completion_tokens" if named else "max_tokens",
            )
        max_tokens = room if asked is None else asked
        digest = hashlib.blake2b(array("I", prompt).tobytes(), digest_size=16).hexdigest()
        rng = random.Random(f"{self._seed}:{request.seed}:{index}:{digest}")
        form = request.response_format
        if form is not None and form.json_schema is not None and self.obeys_formats:
            whole = self._obeying(form.json_schema, rng)
            tokens, cut = whole[:max_tokens], len(whole) > max_tokens
        else:
            drawn = max_tokens if request.ignore_eos else self._lengths.draw(rng)
            tokens, cut = self._words.draw(rng, min(drawn, max_tokens)), drawn >= max_tokens
        return Choice(
            prompt_tokens=len(prompt),
            tokens=tokens,
            finish_reason="length" if cut else "stop",
            max_tokens=max_tokens,
        )

    def _obeying(self, form: JsonSchema, rng: random.Random) -> list[int]:
        try:
            return self.tokenize(obeying_text(form.schema, rng))
        except SchemaNotSimulated as error:
            raise bad_request(f"this simulated engine cannot obey the schema: {error}", "response_format") from error


def _read(api: Api, body: bytes) -> ChatRequest | CompletionRequest:
    if api == "completions":
        completion: CompletionRequest = decode(body, CompletionRequest)
        return completion
    if api == "chat":
        chat: ChatRequest = decode(body, ChatRequest)
        return chat
    asked: ResponsesRequest | MessagesRequest = decode(
        body, ResponsesRequest if api == "responses" else MessagesRequest
    )
    return asked.as_chat()
