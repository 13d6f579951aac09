"""YAML as people write it: maps, lists and scalars, read within bounds, and written so that it is read as the same.

Tags make no objects, and aliases, which could make a small text a huge document, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from controlplane.core.errors import Malformed, TooLarge
from wire.canonical import Document

# In C where PyYAML was built with libyaml: ten times as fast.
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_DUMPER: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_LINE_CHARACTERS = 120
_SHOWN_CHARACTERS = 100
# What some readers take for a number and others for a text.
_LIKE_A_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0[ox][0-9a-fA-F]+")
_TRUE, _FALSE, _NULL = ({"true", "True", "TRUE"}, {"false", "False", "FALSE"}, {"", "~", "null", "Null", "NULL"})
# More digits than any number here has; they stay a text, which the field refuses.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")

Scalar = Callable[[yaml.ScalarEvent], Any]


def as_text(event: yaml.ScalarEvent) -> str:
    """Every scalar is a text."""
    return str(event.value)


def as_value(event: yaml.ScalarEvent) -> str | int | bool | None:
    """A plain scalar is null, true, false or a whole number, as YAML 1.2 has it, and a text otherwise."""
    text = str(event.value)
    if event.style:
        return text
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    return int(text) if _INTEGER.fullmatch(text) else text


@dataclass(frozen=True)
class YamlForm:
    """What is read, in one word of refusals, such as "rules"; and its bounds. `strict`: no tags and no anchors."""

    what: str
    max_bytes: int
    max_depth: int
    scalar: Scalar = as_value
    strict: bool = True

    def read(self, text: bytes) -> Any:
        """The one document of a text. Raises: TooLarge, Malformed (with the line and column)."""
        if len(text) > self.max_bytes:
            raise TooLarge(f"{self.what} may have {self.max_bytes} bytes as YAML")
        try:
            events = iter(yaml.parse(text.decode(), Loader=_LOADER))
            found = [self._value(events, event, 0) for event in events if isinstance(event, yaml.NodeEvent)]
        except UnicodeDecodeError as error:
            raise Malformed(f"{self.what} are UTF-8; byte {error.start} is not") from error
        except yaml.MarkedYAMLError as error:
            raise Malformed(f"no YAML{_place(error.problem_mark)}: {error.problem or error.context}") from error
        except yaml.YAMLError as error:
            raise Malformed(f"no YAML: {' '.join(str(error).split())}") from error
        if len(found) != 1:
            raise Malformed(f"give one document; the body has {len(found)}")
        return found[0]

    def _value(self, events: Iterator[Any], event: Any, depth: int) -> Any:
        place = _place(event.start_mark)
        if depth > self.max_depth:
            raise Malformed(f"nested too deep{place}; {self.what} have {self.max_depth} levels at most")
        if isinstance(event, yaml.AliasEvent):
            raise Malformed(f"an alias{place}; write out what it stands for")
        self._check_plain(event)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(events, each, depth + 1) for each in _until(yaml.SequenceEndEvent, events)]
        return self._map(events, depth + 1)

    def _map(self, events: Iterator[Any], depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for event in _until(yaml.MappingEndEvent, events):
            if not isinstance(event, yaml.ScalarEvent):
                raise Malformed(f"a key that is no text{_place(event.start_mark)}")
            self._check_plain(event)
            if event.value in made:
                name = event.value[:_SHOWN_CHARACTERS]
                raise Malformed(f"{name!r} twice in one map{_place(event.start_mark)}; give each key once")
            made[event.value] = self._value(events, next(events), depth)
        return made

    def _check_plain(self, event: Any) -> None:
        if self.strict and (event.anchor is not None or event.tag is not None):
            raise Malformed(f"an anchor or a tag{_place(event.start_mark)}; leave it out")


def write_yaml(document: Document) -> str:
    """The document as YAML, its maps in their order; texts of several lines stay so, for people to edit."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_LINE_CHARACTERS)


class _Dumper(_DUMPER):  # type: ignore[valid-type,misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _LIKE_A_NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _until(end: type[yaml.Event], events: Iterator[Any]) -> Iterator[Any]:
    return iter(lambda: None if isinstance(event := next(events), end) else event, None)


def _place(mark: Any) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
