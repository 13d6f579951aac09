"""Rule files of Prometheus as people write them: YAML of maps, lists and texts, read within bounds.

All scalars are texts, as every field of a recording rule is. Tags make no objects, and aliases, which could make a
small text a huge document, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from controlplane.core.errors import Malformed, TooLarge
from wire.canonical import Document

MAX_BYTES = 128 << 10
# Of a rule file: the document, its groups, a group, its rules, a rule, its labels.
_MAX_DEPTH = 8
_LINE_CHARACTERS = 120


def read_rules(text: bytes) -> Any:
    """Raises: TooLarge, Malformed (with the line and column)."""
    if len(text) > MAX_BYTES:
        raise TooLarge(f"rules may have {MAX_BYTES} bytes as YAML")
    try:
        events = iter(yaml.parse(text.decode(), Loader=yaml.BaseLoader))
        found = [_value(events, event, 0) for event in events if isinstance(event, yaml.NodeEvent)]
    except UnicodeDecodeError as error:
        raise Malformed(f"rules are UTF-8; byte {error.start} is not") from error
    except yaml.MarkedYAMLError as error:
        raise Malformed(f"no YAML{_place(error.problem_mark)}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise Malformed(f"no YAML: {' '.join(str(error).split())}") from error
    if len(found) != 1:
        raise Malformed(f"give one document; the body has {len(found)}")
    return found[0]


def write_rules(document: Document) -> str:
    """The same rules as YAML."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_LINE_CHARACTERS)


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines stay so, for people to edit."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _value(events: Iterator[Any], event: yaml.Event, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise Malformed(f"nested too deep{_place(event.start_mark)}; rules have {_MAX_DEPTH} levels at most")
    match event:
        case yaml.ScalarEvent():
            return event.value
        case yaml.SequenceStartEvent():
            return [_value(events, each, depth + 1) for each in _until(yaml.SequenceEndEvent, events)]
        case yaml.MappingStartEvent():
            return _map(events, depth + 1)
    raise Malformed(f"an alias{_place(event.start_mark)}; write out what it stands for")


def _map(events: Iterator[Any], depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for event in _until(yaml.MappingEndEvent, events):
        if not isinstance(event, yaml.ScalarEvent):
            raise Malformed(f"a key that is no text{_place(event.start_mark)}")
        if event.value in made:
            raise Malformed(f"{event.value!r} twice in one map{_place(event.start_mark)}; give each key once")
        made[event.value] = _value(events, next(events), depth)
    return made


def _until(end: type[yaml.Event], events: Iterator[Any]) -> Iterator[Any]:
    return iter(lambda: None if isinstance(event := next(events), end) else event, None)


def _place(mark: Any) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
