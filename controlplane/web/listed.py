"""Lists of rows on pages: searched by name and shown a page at a time, and the first few of many names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from django.db.models import Count, Model, QuerySet, Window
from django.http import HttpRequest

from controlplane.web.asked import number_in, text_in

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
RowT = TypeVar("RowT", bound=Model)
ROWS_PER_PAGE = 50
_TEXT_MAX_CHARACTERS = 200
# Behind it nobody looks; a database counts no further than this either.
_PAGE_MAX = 1_000_000


@dataclass(frozen=True)
class Wanted:
    """Which part of a list an address asks for. `text`: what a row's name holds; pages are counted from 1.

    `prefix`: of the parameters' names, where a page has several lists. `kept`: other parameters, each with its value,
    which stay as they are where the list goes on.
    """

    text: str = ""
    page: int = 1
    prefix: str = ""
    kept: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, request: HttpRequest, prefix: str = "", keep: Sequence[str] = ()) -> Wanted:
        """`?q=…&page=…`. What makes no sense there is as good as not said."""
        page = number_in(request, f"{prefix}page") or 1
        text = text_in(request, f"{prefix}q").strip()[:_TEXT_MAX_CHARACTERS].strip()
        kept = tuple((name, value) for name in keep if (value := text_in(request, name)[:_TEXT_MAX_CHARACTERS]))
        return cls(text, min(page, _PAGE_MAX), prefix, kept)

    @property
    def text_name(self) -> str:
        return f"{self.prefix}q"

    @property
    def query(self) -> str:
        """The same as an address has it, with its question mark; empty where all is wanted."""
        said = {self.text_name: self.text, f"{self.prefix}page": self.page if self.page > 1 else ""}
        query = urlencode({**dict(self.kept), **{name: value for name, value in said.items() if value}})
        return f"?{query}" if query else ""

    def at(self, page: int) -> str:
        """The address of another page of it."""
        return replace(self, page=page).query or "?"


@dataclass(frozen=True)
class Listed(Generic[T]):
    """A page of the `found` rows. The addresses' queries of the pages beside it are empty where there are none."""

    wanted: Wanted
    rows: Sequence[T]
    found: int
    first: int
    before: str
    after: str

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    @property
    def is_part(self) -> bool:
        return len(self.rows) < self.found

    @property
    def is_searched(self) -> bool:
        """Whether a person may want to search: in a list that is seen whole nobody does."""
        return self.is_part or bool(self.wanted.text or self.wanted.kept)


def listed(rows: QuerySet[RowT], wanted: Wanted, size: int = ROWS_PER_PAGE) -> Listed[RowT]:
    """The page that is wanted of ordered rows, in one query. One behind the last is the last.

    The caller has left out the rows that are not searched for.
    """
    # Each row says how many there are.
    counted = rows.annotate(found_rows=Window(Count("pk")))
    start = (wanted.page - 1) * size
    on_page = list(counted[start : start + size])
    if not on_page and wanted.page > 1:
        last = max(1, -(-rows.count() // size))
        return listed(rows, replace(wanted, page=last), size)
    found = on_page[0].found_rows if on_page else 0  # type: ignore[attr-defined]
    return _page(wanted, on_page, found, wanted.page, size)


def listed_of(rows: Sequence[T], wanted: Wanted, size: int = ROWS_PER_PAGE) -> Listed[T]:
    """As `listed`, of rows that are known already."""
    page = min(wanted.page, max(1, -(-len(rows) // size)))
    start = (page - 1) * size
    return _page(wanted, rows[start : start + size], len(rows), page, size)


def _page(wanted: Wanted, rows: Sequence[T], found: int, page: int, size: int) -> Listed[T]:
    before = wanted.at(page - 1) if page > 1 else ""
    after = wanted.at(page + 1) if page * size < found else ""
    return Listed(wanted, rows, found, (page - 1) * size + 1, before, after)


class Some(NamedTuple, Generic[T]):
    """The first of many, and how many more there are."""

    first: Sequence[T]
    more: int


def some(things: Sequence[T], most: int) -> Some[T]:
    return Some(things[:most], max(0, len(things) - most))


def named_by(pairs: Iterable[tuple[K, str]]) -> dict[K, list[str]]:
    """(what is named, who names it) as who names each, by name."""
    found: defaultdict[K, list[str]] = defaultdict(list)
    for named, name in sorted(pairs, key=lambda pair: pair[1]):
        found[named].append(name)
    return found
