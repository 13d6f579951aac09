"""What all rows that are known by name have in common: looked up, listed, written, compiled and restored alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from django.db import IntegrityError, models, transaction
from pydantic import create_model

from controlplane.core import fields as f
from controlplane.core.changes import Gathering, Section, UnitOfWork, Written
from controlplane.core.errors import Conflict, NotFound
from wire.canonical import Document
from wire.problems import Problem

RowT = TypeVar("RowT", bound=models.Model)
KeyT = TypeVar("KeyT", str, int)
PAGE_ROWS = 100
PAGE_ROWS_MAX = 1000
USERS_NAMED_MAX = 5
_NAME_SHOWN = 63
_NAMES_A_QUERY = 1000


def page_of(rows: models.QuerySet[RowT], limit: int, key: Callable[[RowT], KeyT]) -> tuple[list[RowT], KeyT | None]:
    """The first `limit` of ordered rows, and the key after which the next page starts (None: there is none).

    One query. The caller has left out the rows up to the key that it was given.
    """
    found = list(rows[: limit + 1])
    return found[:limit], key(found[limit - 1]) if len(found) > limit else None


class Noun(Generic[RowT]):
    """One kind of row and the only way to write it. A subclass says what is particular to it.

    Writes take the unit of work first, lock the row, record the change and touch what must be compiled anew.
    They raise Refused with every problem, NotFound or Conflict.
    """

    noun: ClassVar[str]
    row: type[RowT]
    fields: type[f.Fields]
    # The part of the configuration it compiles into; `order` is that of restoring (see changes.Section).
    section: ClassVar[str]
    order: ClassVar[int] = 0
    name_like: ClassVar[f.Like] = f.LIKE_NAME
    # Names that REST calls stand at where a row's name would.
    reserved_names: ClassVar[frozenset[str]] = frozenset()
    # Foreign keys that the public form names.
    related: ClassVar[tuple[str, ...]] = ()
    # New rows may be stored many at once: none is looked up while another one is assigned.
    independent: ClassVar[bool] = False

    # What a subclass says

    def describe(self, row: RowT) -> Document:
        """The public form: `name` and every field, null where it is not set. Never a secret."""
        raise NotImplementedError

    def assign(self, row: RowT, values: Document) -> list[Problem]:
        """Put checked values into the row; returns what does not fit what this app holds."""
        for field, value in values.items():
            setattr(row, field, value)
        return []

    def wire_form(self, row: RowT) -> Document:
        """The row's entry in the configuration."""
        raise NotImplementedError

    def from_wire(self, content: Document) -> Document:
        """The fields that compile into `content`."""
        return content

    def users(self, row: RowT) -> list[str]:
        """What in this app still uses the row, in words; it cannot be deleted then."""
        return []

    def touch(self, unit: UnitOfWork, row: RowT, name: str) -> None:
        unit.touch(self.section, name)

    # What all have

    @property
    def title(self) -> str:
        """Its name in the OpenAPI page, such as PriorityClass."""
        return self.fields.__name__.removesuffix("Fields")

    @cached_property
    def new_fields(self) -> type[f.Fields]:
        """The fields and the name: what is given to create one."""
        return create_model(f"New{self.title}", __base__=self.fields, name=(Annotated[str, self.name_like], ...))

    def queryset(self) -> models.QuerySet[RowT]:
        rows = self.row._default_manager.all()
        return rows.select_related(*self.related) if self.related else rows

    def get(self, name: str) -> RowT:
        return self._found(name, self.find(name))

    def find(self, name: str, *, lock: bool = False) -> RowT | None:
        """The row, or None. `lock` holds it until the transaction ends, so that what refers to it stays true."""
        if self.name_like.refusal(name):
            return None
        rows = self.queryset().filter(name=name)
        return (rows.select_for_update(of=("self",)) if lock else rows).first()

    def known(self, name: str) -> Document | None:
        """The row's public form; None where there is none."""
        row = self.find(name)
        return None if row is None else self.describe(row)

    def referenced(self, path: str, name: str, problems: list[Problem]) -> RowT | None:
        """The locked row that a field at `path` names; where there is none, a problem is added."""
        row = self.find(name, lock=True)
        if row is None:
            problems.append(Problem(path, "reference", f"{self.noun} {name!r} does not exist"))
        return row

    def page(
        self, limit: int = PAGE_ROWS, after: str = "", *, names: Collection[str] | None = None
    ) -> tuple[list[RowT], str | None]:
        """Rows by name after `after`, of these `names` only where they are given, and where the next page starts."""
        rows = self.queryset().filter(name__gt=after)
        if names is not None:
            rows = rows.filter(name__in=names)
        return page_of(rows.order_by("name"), limit, self._name_of)

    def create(self, unit: UnitOfWork, name: str, fields: Mapping[str, Any]) -> RowT:
        return self._insert(unit, self._new(name, fields), name)

    def update(self, unit: UnitOfWork, name: str, fields: Mapping[str, Any]) -> RowT:
        """Change the given fields. Groups of fields merge; lists and maps are replaced whole."""
        row = self.lock(name)
        before = self.describe(row)
        settable = {field: before[field] for field in self.fields.model_fields if field in before}
        # A field that is write-only is in `values` only when it was given.
        values = f.read(self.fields, f.merged(self.fields, settable, fields)).model_dump(exclude_unset=True)
        return self._store(unit, row, name, before, values)

    def delete(self, unit: UnitOfWork, name: str) -> None:
        self.remove(unit, name, self.lock(name))

    def remove(self, unit: UnitOfWork, name: str, row: RowT) -> None:
        """Delete a row that the caller has locked."""
        users = self.users(row)
        if users:
            raise Conflict(f"{self.noun} {name!r} is used by {some_of(users)}; change these first", code="in_use")
        unit.record(self.noun, name, self.describe(row), None)
        self.touch(unit, row, name)
        row.delete()

    def lock(self, name: str) -> RowT:
        return self._found(name, self.find(name, lock=True))

    def as_section(
        self, *, restorable: bool = True, written: bool = True, state: frozenset[str] = frozenset()
    ) -> Section:
        restore = self.restore if restorable else None
        form = Written(self.written, self.check, self.write_many, self.fields) if written else None
        return Section(
            self.section,
            self.compile,
            self.keys,
            restore,
            compile_many=self.compile_many,
            state=state,
            written=form,
            order=self.order,
        )

    def compile(self, name: str) -> Document | None:
        row = self.find(name)
        return None if row is None else self.wire_form(row)

    def compile_many(self, names: Collection[str]) -> dict[str, Document]:
        return {self._name_of(row): self.wire_form(row) for row in self._named(names)}

    def keys(self) -> list[str]:
        return list(self.row._default_manager.order_by("name").values_list("name", flat=True))

    def restore(self, unit: UnitOfWork, name: str, content: Document | None) -> None:
        """Make the row compile into `content`; None removes it."""
        self.write(unit, name, self.find(name, lock=True), None if content is None else self.from_wire(content))

    def lock_many(self, names: Collection[str]) -> dict[str, RowT]:
        """The rows of these names, locked until the transaction ends."""
        return {self._name_of(row): row for row in self._named(names, lock=True)}

    def write(self, unit: UnitOfWork, name: str, row: RowT | None, fields: Document | None) -> None:
        """Make the row, locked where there is one, have these fields, and else its defaults; None removes it."""
        if fields is None:
            if row is not None:
                self.remove(unit, name, row)
        elif row is None:
            self.create(unit, name, fields)
        else:
            self._store(unit, row, name, self.describe(row), f.read(self.fields, fields).model_dump())

    def write_many(self, unit: UnitOfWork, entries: Mapping[str, Document | None], gathering: Gathering) -> None:
        """`write` each of these (see changes.Written)."""
        rows, new = self.lock_many(entries), dict[str, RowT]()
        for name, fields in entries.items():
            with gathering(name):
                if self.independent and fields is not None and name not in rows:
                    new[name] = self._new(name, fields)
                else:
                    self.write(unit, name, rows.get(name), fields)
        # Their names are nobody's, and nobody else writes now.
        self.row._default_manager.bulk_create(new.values())
        for name, row in new.items():
            self._created(unit, row, name)

    def written(self, content: Document) -> Document:
        """An entry of the configuration as people write it (see changes.Written)."""
        return self._plain(self.from_wire(content))

    def check(self, name: str, given: Any) -> Document:
        """What somebody gives for the row of this name, as people write it. Raises Refused with every problem."""
        if wrong := self.name_like.refusal(name):
            f.refuse_if([Problem("/", "pattern", f"the name {name[:_NAME_SHOWN]!r}: {wrong}")])
        f.refuse_if([Problem("/", problem.rule, problem.message) for problem in self._reserved(name)])
        if not isinstance(given, dict):
            f.refuse_if([Problem("/", "type", "give a map of fields; {} takes every default")])
        return self._plain(given)

    def _plain(self, fields: Document) -> Document:
        return f.read(self.fields, fields).model_dump(exclude_none=True, exclude_defaults=True)

    def _named(self, names: Collection[str], *, lock: bool = False) -> Iterator[RowT]:
        ordered = sorted(names)
        for start in range(0, len(ordered), _NAMES_A_QUERY):
            rows = self.queryset().filter(name__in=ordered[start : start + _NAMES_A_QUERY])
            yield from rows.select_for_update(of=("self",)) if lock else rows

    def _name_of(self, row: RowT) -> str:
        return str(row.name)  # type: ignore[attr-defined]

    def _reserved(self, name: str) -> list[Problem]:
        if name not in self.reserved_names:
            return []
        return [Problem("/name", "reserved", f"{name!r} names a REST call; choose another name")]

    def _found(self, name: str, row: RowT | None) -> RowT:
        if row is None:
            raise NotFound(f"there is no {self.noun} {name!r}")
        return row

    def _new(self, name: str, fields: Mapping[str, Any]) -> RowT:
        """A row that is not stored yet."""
        row = self.row(name=name)
        values = f.read(self.new_fields, {**fields, "name": name}).model_dump(exclude={"name"})
        f.refuse_if(self.assign(row, values) + self._reserved(name))
        return row

    def _insert(self, unit: UnitOfWork, row: RowT, name: str) -> RowT:
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError as error:
            taken = Problem("/name", "unique", "choose another name")
            raise Conflict(f"{self.noun} {name!r} exists already", [taken]) from error
        self._created(unit, row, name)
        return row

    def _created(self, unit: UnitOfWork, row: RowT, name: str) -> None:
        unit.record(self.noun, name, None, self.describe(row))
        self.touch(unit, row, name)

    def _store(self, unit: UnitOfWork, row: RowT, name: str, before: Document, values: Document) -> RowT:
        f.refuse_if(self.assign(row, values))
        return self._save(unit, row, name, before)

    def _save(self, unit: UnitOfWork, row: RowT, name: str, before: Document) -> RowT:
        row.save()
        unit.record(self.noun, name, before, self.describe(row))
        self.touch(unit, row, name)
        return row


def some_of(things: list[str]) -> str:
    """The first few, and how many more there are."""
    more = len(things) - USERS_NAMED_MAX
    return ", ".join(things[:USERS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def present(document: Document) -> Document:
    """The document without what is not set: in the configuration a field is absent instead of null."""
    return {field: value for field, value in document.items() if value is not None}


def as_set(names: list[str] | None) -> dict[str, bool] | None:
    """A list of names as the configuration writes sets: {name: true}."""
    return None if names is None else dict.fromkeys(names, True)
