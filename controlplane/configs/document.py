"""The whole configuration as one document, in the fields that people write, so that it can be kept as a text.

`format`, then one map a section: name → fields, without null and without what is so by default. It holds what people
set: no keys of tenants or engines, no nodes, cordons, overrides or temporary limits, which are state or secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus

from controlplane.configs.current import current
from controlplane.configs.history import content_at
from controlplane.core.changes import Section, Written, sections
from controlplane.core.errors import Refused
from controlplane.core.fields import refuse_if
from wire.canonical import Document
from wire.problems import Problem, pointer

FORMAT = "headworks/1"


def written_sections() -> Iterator[tuple[Section, Written]]:
    """The sections that the document has, in the order in which they are written."""
    for section in sorted(sections.values(), key=lambda section: (section.order, section.name)):
        if section.written is not None:
            yield section, section.written


def document_now() -> Document:
    """The configuration as the last write left it."""
    found = current([section.name for section, _ in written_sections()])
    return _document_of(found.section)


def document_at(number: int) -> Document:
    """As it was in a revision. Raises NotFound, Damaged, or Refused where it holds what is not valid any more."""
    content = content_at(number).content
    return _document_of(lambda section: content.get(section, {}))


@contextmanager
def gathered(problems: list[Problem], path: str) -> Iterator[None]:
    """Add what the block is refused for to `problems`, below `path`; what is our own fault goes on."""
    try:
        yield
    except Refused as error:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        found = error.problems or [Problem("/", error.code, error.detail)]
        problems += [Problem(path + problem.path.rstrip("/"), problem.rule, problem.message) for problem in found]


def _document_of(entries: Callable[[str], Mapping[str, Document]]) -> Document:
    document: Document = {"format": FORMAT}
    problems: list[Problem] = []
    for section, written in written_sections():
        document[section.name] = made = {}
        for key, content in sorted(entries(section.name).items()):
            with gathered(problems, pointer(f"/{section.name}", key)):
                made[key] = written.of_content(content)
    refuse_if(problems)
    return document
