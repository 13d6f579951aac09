"""Runbooks as HTML. They are written in a small part of Markdown: headings, paragraphs, lists, tables, code, links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_noop

_CODE = re.compile(r"`([^`]+)`")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_EMPHASIS = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
# The themes of the list (controlplane/alerts/runbooks.py).
THEMES = (
    gettext_noop("Promises"),
    gettext_noop("Capacity"),
    gettext_noop("Refusals and failures"),
    gettext_noop("Engines"),
    gettext_noop("Errors of GPUs"),
    gettext_noop("Memory of GPUs"),
    gettext_noop("Clocks of GPUs"),
    gettext_noop("Links and hosts"),
    gettext_noop("Told by events: rules for those who evaluate elsewhere"),
    gettext_noop("Gateways and nodes"),
    gettext_noop("The control plane itself"),
    gettext_noop("Tenants"),
)
_RUNBOOK = re.compile(r"([a-z0-9-]+)\.md")
_ITEM = re.compile(r"(?:-|\d+\.) ")
_RULE = re.compile(r"[|:\- ]+")


def as_html(text: str) -> SafeString:
    """The page without its first heading, which is the alert's name. What is no such Markdown stands as it is."""
    body = text.split("\n", 1)[1] if text.startswith("# ") else text
    # All of the text was escaped before a tag was put around it.
    return mark_safe("\n".join(_html_of(block) for block in _blocks(body)))  # noqa: S308


def line_as_html(text: str) -> SafeString:
    """One line without a paragraph around it."""
    return mark_safe(_inline(text))  # noqa: S308


def _blocks(text: str) -> Iterator[list[str]]:
    """Lines that belong together: blank ones divide them, but for those within a fence."""
    block: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        fenced ^= line.startswith("```")
        if line or fenced:
            block.append(line)
        elif block:
            yield block
            block = []


def _html_of(block: list[str]) -> str:
    first = block[0]
    if first.startswith("```"):
        return f'<pre class="shell">{escape(chr(10).join(block[1:-1]))}</pre>'
    if first.startswith("## "):
        return f"<h2>{_inline(first[3:])}</h2>"
    if first.startswith("|"):
        return _table(block)
    if _ITEM.match(first):
        kind = "ul" if first.startswith("- ") else "ol"
        return f"<{kind}>{''.join(f'<li>{_inline(item)}</li>' for item in _items(block))}</{kind}>"
    return f"<p>{_inline(' '.join(block))}</p>"


def _items(block: list[str]) -> Iterator[str]:
    item = ""
    for line in block:
        if _ITEM.match(line):
            if item:
                yield item
            item = _ITEM.sub("", line, count=1)
        else:
            item += f" {line.strip()}"
    yield item


def _table(block: list[str]) -> str:
    rows = [line.strip().strip("|").split("|") for line in block if not _RULE.fullmatch(line)]
    head = "".join(f'<th scope="col">{_inline(cell.strip())}</th>' for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{_inline(cell.strip())}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _inline(text: str) -> str:
    """Code first: nothing within it is anything else."""
    parts = _CODE.split(text)
    # What stands between the matches, and what was matched, in turns.
    return "".join(f"<code>{escape(part)}</code>" if place % 2 else _marked(part) for place, part in enumerate(parts))


def _marked(text: str) -> str:
    marked: str = escape(text)
    replacements: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
        (_LINK, _link),
        (_BOLD, r"<strong>\1</strong>"),
        (_EMPHASIS, r"<em>\1</em>"),
    )
    for pattern, by in replacements:
        marked = pattern.sub(by, marked)
    return marked


def _link(found: re.Match[str]) -> str:
    """Another runbook is a page here; the rest of the documentation is not."""
    text, target = found.groups()
    runbook = _RUNBOOK.fullmatch(target)
    return f'<a href="{reverse("web:runbook", args=[runbook[1]])}">{text}</a>' if runbook else text
