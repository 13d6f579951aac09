"""Jinja for templates that somebody uploads: as Hugging Face sets it up, and held to a budget.

Jinja's own sandbox keeps a template from what it must not reach. This one also counts what it does: passes of loops,
calls, and each text that an operator, a filter or a method is about to make, before it is made. Filters and methods
that are not listed here are not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from jinja2 import TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from policy.template_sizes import SIZES, length_of, size_after, size_of_method, weight_of, width_of

# No template can name these: they are no identifiers.
WORK, _STEP, _LOOP, _JINJAS = " work", " step", " loop", " of jinja "
# What Jinja itself adds to each call in a loop or a block.
_GIVEN_BY_JINJA = ("_loop_vars", "_block_vars")
# At this, what is given takes little more room than in its body.
_MAX_USUAL_WIDTH = 8
# Some 2 MB at most.
_KEPT_TEXTS, _KEPT_CHARACTERS = 256, 4_096
# Filters that make a text of what they are given, whatever it is; and those that look at values, or hand them on.
_OF_TEXT = (
    "capitalize",
    "e",
    "escape",
    "indent",
    "join",
    "lower",
    "replace",
    "string",
    "title",
    "trim",
    "truncate",
    "upper",
    "wordcount",
)
_OF_VALUES = (
    "abs", "attr", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last", "length",
    "list", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort",
    "sum", "unique",
)  # fmt: skip
_METHODS_OF_TEXT = frozenset(
    [
        *("capitalize", "casefold", "lower", "swapcase", "title", "upper"),
        *("count", "endswith", "find", "index", "rfind", "rindex", "startswith"),
        *("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "isupper"),
        *("lstrip", "removeprefix", "removesuffix", "rstrip", "strip"),
        *("partition", "rpartition", "rsplit", "split", "splitlines"),
        *("format", "join", "replace"),
    ]
)


class _Generation(Extension):
    """`{% generation %}` marks what an assistant said, for training; what is in it is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """A rendering needs its `Work` under WORK among the variables."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=_finalized
        )
        of_jinja = {name: self.filters[name] for name in (*_OF_TEXT, *_OF_VALUES)}
        self.filters = {_JINJAS + name: each for name, each in of_jinja.items()}
        self.filters |= {name: self._counted(name) for name in of_jinja}
        self.filters |= {"tojson": _tojson, _STEP: _step, _LOOP: _looped}
        self.globals["raise_exception"] = _raise_exception
        # It makes any amount of text in one call.
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _LOOP, [], [], None, None)
        blocks: list[nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block] = [*tree.find_all(nodes.For)]
        blocks += [*tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock), *tree.find_all(nodes.Block)]
        for block in blocks:
            step = nodes.Filter(nodes.Const(None), _STEP, [], [], None, None)
            block.body.insert(0, nodes.ExprStmt(step, lineno=block.lineno))
        for text in tree.find_all(nodes.Concat):
            # `a ~ b` as `'' + a + b` of texts: what is bounded there is bounded here.
            text.nodes[:] = [_sum_of_texts(text.nodes)]
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        context[WORK].make(size_after(context[WORK], operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Jinja wraps `format`.
        method = getattr(obj, "__wrapped__", obj)
        if isinstance(text := getattr(method, "__self__", None), str):
            work = context[WORK]
            work.step()
            given = {name: value for name, value in kwargs.items() if name not in _GIVEN_BY_JINJA}
            work.make(size_of_method(work, text, method.__name__, *args, **given))
        return super().call(context, obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in _METHODS_OF_TEXT
        return not isinstance(obj, int | float) and super().is_safe_attribute(obj, attr, value)

    def _counted(self, name: str) -> Callable[..., Any]:
        """A filter of Jinja, whose work is weighed before it is done."""
        plain: Callable[..., int] = weight_of if name in _OF_TEXT else length_of
        size = SIZES.get(name, plain)
        of_jinja = _JINJAS + name

        def counted(context: Context, value: Any, *args: Any, **options: Any) -> Any:
            if isinstance(value, Iterator):
                value = list(value)
            work = context[WORK]
            work.step()
            work.make(size(work, value, *args, **options))
            return self.call_filter(of_jinja, value, args, options, context)

        return pass_context(counted)


def _sum_of_texts(parts: list[nodes.Expr]) -> nodes.Expr:
    whole: nodes.Expr = nodes.Const("")
    for part in parts:
        whole = nodes.Add(whole, nodes.Filter(part, "string", [], [], None, None))
    return whole


@pass_context
def _finalized(context: Context, value: Any) -> Any:
    """What is put out as it is a text, and what becomes one."""
    if not isinstance(value, str):
        context[WORK].make(context[WORK].weigh(value))
    return value


@pass_context
def _step(context: Context, value: None) -> None:
    context[WORK].step()


@pass_context
def _looped(context: Context, values: Any) -> Any:
    """What a loop goes through, whether or not its condition lets it pass."""
    context[WORK].make(length_of(context[WORK], values))
    return values


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face has it: Jinja's own escapes for HTML, which no prompt is."""
    work = context[WORK]
    width = width_of(indent) + sum(map(width_of, separators or ()))
    if width > _MAX_USUAL_WIDTH or not work.is_given(value):
        work.make(work.weigh(value) * (1 + width))
    form = _Form(ensure_ascii, indent, None if separators is None else tuple(separators), sort_keys)
    if indent is not None and len(text := json.dumps(value)) <= _KEPT_CHARACTERS:
        return _indented(text, form)
    return json.dumps(value, **form._asdict())


class _Form(NamedTuple):
    ensure_ascii: bool
    indent: int | str | None
    separators: tuple[str, ...] | None
    sort_keys: bool


@lru_cache(_KEPT_TEXTS)
def _indented(text: str, form: _Form) -> str:
    """Kept, since an agent sends its tools with each call, and to indent them takes ten times as long as to read."""
    return json.dumps(json.loads(text), **form._asdict())


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
