"""What people may set, and how it is refused: one description a noun, for REST, pages, imports and the OpenAPI page.

A noun's fields are a subclass of `Fields`; its ranges and patterns are those of `wire.snapshot`, so that nothing
is stored that a target would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from django.db import models
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic import GetJsonSchemaHandler as JsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from controlplane.core.errors import Refused
from wire import snapshot
from wire.canonical import Document, NotCanonical, check_canonical
from wire.problems import Problem, pointer

NAMES_MAX = 1000
# Of many problems, those that the message of a refusal has.
SHOWN_PROBLEMS = 5


class Fields(BaseModel):
    """Base of every description. Unknown fields are refused, and no type is converted into another."""

    model_config = ConfigDict(extra="forbid", strict=True)


FieldsT = TypeVar("FieldsT", bound=Fields)


@dataclass(frozen=True)
class Like:
    """Check a value as the wire format does. `says` is for people, where msgspec would show a regular expression."""

    kind: Any
    says: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: JsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), **msgspec.json.schema(self.kind)}

    def refusal(self, value: Any) -> str | None:
        """What would be right, or None where the value is."""
        try:
            msgspec.convert(value, self.kind)
        except msgspec.ValidationError as error:
            return self.says or str(error)
        return None

    def _check(self, value: Any) -> Any:
        if message := self.refusal(value):
            raise PydanticCustomError("pattern" if self.says else "range", "{message}", {"message": message})
        return value


def _printable(text: str) -> str:
    try:
        check_canonical(text)
    except NotCanonical as error:
        raise PydanticCustomError("characters", "{message}", {"message": error.rule}) from error
    return text


def distinct(names: list[str]) -> list[str]:
    return sorted(set(names))


def _whole_milliseconds(moment: datetime) -> datetime:
    # The configuration carries milliseconds; a row that held more could not be restored to the same.
    try:
        return moment.astimezone(UTC).replace(microsecond=moment.microsecond // 1000 * 1000)
    except OverflowError as error:
        raise PydanticCustomError("range", "give a time in the years 1 to 9999, as UTC has it") from error


LIKE_NAME = Like(snapshot.Name, "give 1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit")
LIKE_MODEL_NAME = Like(
    snapshot.ModelName, "give 1 to 200 of letters, digits and . _ : / @ + -, the first a letter or digit"
)

Count = Annotated[int, Like(snapshot.Count)]
Positive = Annotated[int, Like(snapshot.Positive)]
Millis = Annotated[int, Like(snapshot.Millis)]
# The wire allows more, but no row can hold a time after the year 9999.
EPOCH_MS_MAX = 253_402_300_799_999
EpochMillis = Annotated[int, Like(Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MS_MAX)])]
PerMille = Annotated[int, Like(snapshot.PerMille)]
Name = Annotated[str, LIKE_NAME]
ModelName = Annotated[str, LIKE_MODEL_NAME]
LIKE_SHA256 = Like(snapshot.Sha256, "give a SHA-256 as 64 lower-case hex digits")
Sha256 = Annotated[str, LIKE_SHA256]
Names = Annotated[list[Name], Field(max_length=NAMES_MAX), AfterValidator(distinct)]
ModelNames = Annotated[list[ModelName], Field(max_length=NAMES_MAX), AfterValidator(distinct)]
Text = Annotated[str, AfterValidator(_printable)]
# Read from its ISO 8601 form; a naive time is refused.
Moment = Annotated[AwareDatetime, Field(strict=False), AfterValidator(_whole_milliseconds)]


def read(kind: type[FieldsT], fields: Mapping[str, Any]) -> FieldsT:
    """Check `fields` against their description. Raises Refused with every problem, each at its JSON Pointer."""
    try:
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        refuse_if([_problem(kind, entry["loc"], entry["type"], entry["msg"]) for entry in error.errors()])
        raise


def _problem(kind: type[Fields], place: tuple[int | str, ...], rule: str, message: str) -> Problem:
    path = "/"
    for part in place:
        path = path if part == "[key]" else pointer(path, part)
    if rule == "extra_forbidden" and len(place) == 1:
        return Problem(path, "unknown", f"no such field; there are {', '.join(kind.model_fields)}")
    return Problem(path, "required" if rule == "missing" else rule, message)


def refuse_if(problems: Sequence[Problem]) -> None:
    """Raise Refused with these problems, if there are any."""
    if problems:
        raise refused(problems)


def refused(problems: Sequence[Problem]) -> Refused:
    return Refused(shown(problems), problems)


def shown(problems: Sequence[Problem]) -> str:
    """The first few in words."""
    return "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:SHOWN_PROBLEMS])


def merged(kind: type[Fields], current: Document, given: Mapping[str, Any]) -> Document:
    """`current` with what is given. A group of fields is merged field by field; lists and maps are replaced whole."""
    result = {**current, **given}
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Fields) and name in given:
            old, new = current.get(name), given[name]
            result[name] = {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new
    return result


def default_of(row: type[models.Model], field: str) -> Any:
    """The default of a row's column, so that it stands in one place."""
    return row._meta.get_field(field).get_default()  # type: ignore[union-attr]


def iso(moment: datetime | None) -> str | None:
    """A time in public forms: ISO 8601, UTC, milliseconds."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_ms(moment: datetime) -> int:
    """A time on the wire. Exact: floats would lose the last millisecond."""
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def from_epoch_ms(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)


@dataclass(frozen=True)
class ShownAs:
    """Documents a REST body by its description. The service checks it, as it does for every caller."""

    kind: type[BaseModel]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: JsonSchemaHandler) -> dict[str, Any]:
        return handler(self.kind.__pydantic_core_schema__)
