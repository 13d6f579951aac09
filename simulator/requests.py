"""What clients may send to a simulated engine: the OpenAI fields, their bounds, and refusals that name the field."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

# As vLLM: a completion without max_tokens has 16; a chat may fill the model's length.
DEFAULT_COMPLETION_TOKENS = 16
MAX_CHOICES = 128

OutputTokens = Annotated[int, Meta(ge=1, le=10_000_000)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]


class ApiError(Exception):
    """A refusal in vLLM's OpenAI shape: `status`, `kind` (its `type`), the message, and `param`, the field at fault."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, "BadRequestError", message, param)


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = False


class TextPart(Struct, frozen=True):
    type: Literal["text"]
    text: str


class Message(Struct, frozen=True):
    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | Annotated[list[TextPart], Meta(max_length=10_000)] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class JsonSchema(Struct, frozen=True):
    name: str
    schema: dict[str, Any]


class ResponseFormat(Struct, frozen=True):
    type: str
    json_schema: JsonSchema | None = None


class Sampling(Struct, frozen=True, kw_only=True):
    """The fields that chat and completions share. Those after `seed` are known in order to refuse them by name."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Choices | None = 1
    max_tokens: OutputTokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    ignore_eos: bool = False
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Any = None
    logprobs: Any = None
    response_format: ResponseFormat | None = None
    structured_outputs: Any = None

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check(self) -> None:
        """Raises: ApiError for what contradicts itself, and for what is not simulated (never ignored silently)."""
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options is allowed only with stream: true", "stream_options")
        if self.response_format is not None:
            _check_format(self.response_format)
        for field in ("stop", "logprobs", "structured_outputs", *self._also_not_simulated):
            if getattr(self, field):
                raise not_simulated(field)

    @property
    def _also_not_simulated(self) -> tuple[str, ...]:
        return ()


class ChatRequest(Sampling, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=10_000)]
    max_completion_tokens: OutputTokens | None = None
    tools: Any = None

    @property
    def asked_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def _also_not_simulated(self) -> tuple[str, ...]:
        return ("tools",)


class CompletionRequest(Sampling, frozen=True, kw_only=True):
    """`POST /v1/completions`: a prompt, a list of prompts, or the tokens of one prompt."""

    prompt: str | Annotated[list[str | int], Meta(min_length=1, max_length=1_000_000)]
    echo: Any = None
    suffix: Any = None

    @property
    def asked_tokens(self) -> int:
        return DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def _also_not_simulated(self) -> tuple[str, ...]:
        return ("echo", "suffix")

    def prompts(self) -> list[str] | list[list[int]]:
        """Raises: ApiError for a list of strings and tokens mixed, or of too many prompts."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        texts = [item for item in self.prompt if isinstance(item, str)]
        if not texts:
            return [[item for item in self.prompt if isinstance(item, int)]]
        if len(texts) != len(self.prompt):
            raise bad_request("prompt must be a string, a list of strings or a list of token ids", "prompt")
        if len(texts) > MAX_CHOICES:
            raise bad_request(f"prompt must hold at most {MAX_CHOICES} strings", "prompt")
        return texts


class StreamField(Struct, frozen=True):
    """Whether a request asks for a stream, of either endpoint."""

    stream: bool | None = False


class TokenizeRequest(Struct, frozen=True):
    """`POST /tokenize`: of a text, or of messages under the chat template."""

    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=10_000)] | None = None


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /simulator/fault`: what the engine does wrong from now on.

    `hang`: takes requests into its queue and computes nothing. `error_500`: refuses each. `slow`: steps take
    `factor` times as long. `sse_error`: a stream is HTTP 200 whose first event is an error with code 503; others
    get 503. `drop_format`: passes over `response_format` without a word, as frontends do that do not know it. With
    `requests`, one of the two error faults clears after that many of them.
    """

    kind: Literal["none", "hang", "error_500", "slow", "sse_error", "drop_format"]
    factor: Annotated[float, Meta(gt=0, le=1000)] = 10.0
    requests: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class LoadAdapter(Struct, frozen=True):
    """`POST /v1/load_lora_adapter`."""

    lora_name: Annotated[str, Meta(min_length=1, max_length=200)]
    lora_path: Annotated[str, Meta(min_length=1, max_length=4096)]


class UnloadAdapter(Struct, frozen=True):
    """`POST /v1/unload_lora_adapter`."""

    lora_name: Annotated[str, Meta(min_length=1, max_length=200)]


def _check_format(given: ResponseFormat) -> None:
    if given.type not in ("text", "json_schema"):
        raise not_simulated("response_format")
    if (given.type == "json_schema") != (given.json_schema is not None):
        raise bad_request("json_schema is given with type json_schema, and only then", "response_format")


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_FIELD = re.compile(r"(?:field `(\w+)`)|(?: - at `\$\.?([\w.\[\]]+)`)")


def decode(body: bytes, kind: type[Any]) -> Any:
    """Read a body as one of the requests that are known.

    Raises: ApiError with the field at fault as `param`.
    """
    try:
        decoder = _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind))
        request = decoder.decode(body)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        raise bad_request(str(error), (found[1] or found[2]) if found else None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not JSON in UTF-8: {error}") from error
    if isinstance(request, Sampling):
        request.check()
    return request


def not_simulated(field: str) -> ApiError:
    return bad_request(f"{field} is not supported by this simulated engine; leave it out", field)


def model_not_found(model: str) -> ApiError:
    return ApiError(404, "NotFoundError", f"The model `{model}` does not exist.", "model")
