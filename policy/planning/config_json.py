"""Reading a Hugging Face `config.json`: text to document, and fields that say by name what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from wire.problems import Problem, pointer

# The largest that are known, of quantised models with a list of every layer, have some 200 kB.
TEXT_MAX_BYTES = 512 * 1024


class BadConfig(ValueError):
    """A config.json that cannot be planned with. `problems` name every field and what would be right."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{problem.path}: {problem.message}" for problem in self.problems))


def read_text(text: bytes | str) -> dict[str, Any]:
    """The document in a text. Raises BadConfig where it is too long, too deep, no JSON, or no object."""
    if len(text) > TEXT_MAX_BYTES:
        says = f"a config.json has at most {TEXT_MAX_BYTES} bytes, and this has {len(text)}; give that file alone"
        raise BadConfig([Problem("/", "length", says)])
    try:
        document = json.loads(text, parse_constant=_no_number, object_pairs_hook=_names_once)
    except RecursionError:
        raise BadConfig([Problem("/", "depth", "it is nested too deep for a config.json")]) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise BadConfig([Problem("/", "json", f"this is not JSON: {error}")]) from None
    return document_in(document)


def document_in(value: Any) -> dict[str, Any]:
    """The value itself, where it is an object. Raises BadConfig."""
    if not isinstance(value, dict):
        raise BadConfig([Problem("/", "type", "a config.json is one JSON object")])
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise ValueError(f"{twice[:100]!r} stands twice in one object")
    return made


class ConfigFields:
    """The fields of one object of a config.json. What is wrong is noted, and `check` refuses it all at once.

    `defaults`: values of fields that files of this kind leave out, as transformers has them.
    """

    def __init__(
        self, document: Mapping[str, Any], *, path: str = "/", defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._document, self._path, self._defaults = document, path, defaults or {}
        self.problems: list[Problem] = []

    def note(self, name: str, rule: str, message: str) -> None:
        problem = Problem(pointer(self._path, name), rule, message)
        if problem not in self.problems:
            self.problems.append(problem)

    def check(self) -> None:
        """Raise BadConfig with what was noted."""
        if self.problems:
            raise BadConfig(self.problems)

    def get(self, name: str) -> Any:
        """The value, that of transformers where there is none; None where null is meant or nothing known."""
        return self._document.get(name, self._defaults.get(name))

    def whole(self, name: str, most: int, *, least: int = 1, help: str = "") -> int:
        """A whole number of this range. Where it is not, the least stands in its place until `check`."""
        value = self.get(name)
        if name not in self._document and value is None:
            self.note(name, "required", f"the field {name!r} is missing{help and f'; {help}'}")
            return least
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.note(name, "range", f"give a whole number from {least} to {most}{help and f': {help}'}")
            return least
        return value

    def whole_or(self, name: str, most: int, otherwise: int, *, least: int = 1) -> int:
        """As `whole`; `otherwise` where it is null or left out."""
        return otherwise if self.get(name) is None else self.whole(name, most, least=least)

    def flag(self, name: str, *, otherwise: bool = False) -> bool:
        value = self.get(name)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            self.note(name, "type", "give true or false")
            return otherwise
        return value

    def words(self, name: str, known: Iterable[str], length: int) -> list[str] | None:
        """A list of so many words out of those that are known; None where there is none."""
        value, known = self.get(name), tuple(known)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            self.note(name, "length", f"give one entry for each of the {length} layers")
            return None
        if wrong := [each for each in value if each not in known]:
            self.note(name, "unknown", f"{str(wrong[0])[:100]!r} is not known; there are {', '.join(known)}")
            return None
        return value

    def divides(self, part: str, parts: int, whole: str, number: int) -> None:
        """Note it where `parts` do not divide `number`, unless one of them could not be read at all."""
        if number % parts and self._were_read(part, whole):
            self.note(part, "range", f"{part} {parts} must divide {whole} {number} without a rest")

    def is_at_most(self, part: str, parts: int, whole: str, number: int) -> None:
        """Note it where there are more `parts` than `number`, unless one of them could not be read at all."""
        if parts > number and self._were_read(part, whole):
            self.note(part, "range", f"{part} {parts} cannot be more than {whole} {number}")

    def _were_read(self, *names: str) -> bool:
        return {problem.path for problem in self.problems}.isdisjoint(pointer(self._path, name) for name in names)
