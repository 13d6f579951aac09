"""What holds for every template, asset and translation: they work under the strict policy, offline, in Turkish."""

from __future__ import annotations

import gettext
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.services import service_binary

ROOT = Path(__file__).resolve().parents[1]
CONTROLPLANE = ROOT / "controlplane"
TEMPLATES = sorted(CONTROLPLANE.rglob("templates/**/*.html"))
ASSETS = sorted(file for file in CONTROLPLANE.rglob("static/**/*") if file.suffix in {".css", ".js", ".svg", ".html"})
CATALOGUE = CONTROLPLANE / "locale/tr/LC_MESSAGES/django.po"

# An XML name space is a name, not an address: nothing fetches it.
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://www.w3.org/1999/xhtml")
DATA_BLOCKS = {"application/json", "speculationrules"}


class InlineCode(HTMLParser):
    """Collects what a policy without 'unsafe-inline' and 'unsafe-eval' blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in named and named.get("type") not in DATA_BLOCKS):
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            if name == "style" or name.startswith(("on", "hx-on")):
                self.found.append(name)
            elif (value or "").strip().lower().startswith(("javascript:", "js:")):
                self.found.append(f"{name}={value}")


def inline_code(template: str) -> list[str]:
    parser = InlineCode()
    parser.feed(re.sub(r"{%.*?%}|{#.*?#}", " ", template, flags=re.DOTALL))
    parser.close()
    return parser.found


class Fetched(HTMLParser):
    """Collects the addresses that a browser fetches, or sends a form to, without a person following a link."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"src", "srcset", "poster", "data", "action", "formaction", "hx-get", "hx-post", "hx-put", "hx-delete"}
        wanted = names | ({"href"} if tag in {"link", "image", "use", "base"} else set())
        self.found += [value or "" for name, value in attrs if name in wanted]


def fetched_from_outside(page: str) -> list[str]:
    """Of a page as it is answered, what it would fetch from another host."""
    parser = Fetched()
    parser.feed(page)
    parser.close()
    return [address for address in parser.found if ":" in address.partition("?")[0] or address.startswith("//")]


def outside_addresses(text: str) -> Iterator[str]:
    for namespace in NAMESPACES:
        text = text.replace(f'"{namespace}"', '""')
    yield from re.findall(r"""(?:https?:)?//[\w-]+(?:\.[\w-]+)+[^\s"'<>)]*""", text)


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("<script>go()</script>", ["<script>"]),
        ("<style>p {}</style>", ["<style>"]),
        ('<p style="color: red">', ["style"]),
        ('<p {% if a %}onclick="go()"{% endif %}>', ["onclick"]),
        ('<p hx-on:click="go()">', ["hx-on:click"]),
        ("""<p hx-vals='js:{"a": b}'>""", ["""hx-vals=js:{"a": b}"""]),
        ('<a href="javascript:go()">', ["href=javascript:go()"]),
        ("""<script src="{% static 'a.js' %}" defer></script><p class="{{ a }}" hx-get="/a">""", []),
        ('<script type="application/json">{}</script>', []),
    ],
)
def test_inline_code_is_seen(template, found):
    assert inline_code(template) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://cdn.example/a.js">', ["https://cdn.example/a.js"]),
        ("@import '//fonts.example/a.css';", ["//fonts.example/a.css"]),
        ('<svg xmlns="http://www.w3.org/2000/svg">', []),
        ("// a comment. Not an address", []),
    ],
)
def test_an_outside_address_is_seen(text, found):
    assert list(outside_addresses(text)) == found


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<img src="https://cdn.example/a.png">', ["https://cdn.example/a.png"]),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', ["//fonts.example/a.css"]),
        ('<form action="javascript:go()">', ["javascript:go()"]),
        ('<a href="https://docs.example/">', []),
        ('<form action="/log-in/?next=https://a.example/"><script src="/static/a.js"></script>', []),
    ],
)
def test_what_is_fetched_from_outside_is_seen(page, found):
    assert fetched_from_outside(page) == found


def test_the_control_plane_has_templates_and_assets():
    assert TEMPLATES
    assert ASSETS


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_a_template_has_no_inline_code(file):
    assert inline_code(file.read_text()) == []


@pytest.mark.parametrize("file", [*TEMPLATES, *ASSETS], ids=lambda file: file.name)
def test_pages_load_nothing_from_outside(file):
    assert list(outside_addresses(file.read_text())) == []


def test_the_turkish_catalogue_is_well_formed_and_complete():
    msgfmt = service_binary("msgfmt")
    command: list[str | Path] = [msgfmt, "--check", "--statistics", "--output-file", os.devnull, CATALOGUE]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    assert checked.returncode == 0, checked.stderr
    assert re.fullmatch(r"\d+ translated messages?\.", checked.stderr.strip()), checked.stderr


def test_every_text_of_the_sources_is_in_the_turkish_catalogue(tmp_path):
    msgcmp = service_binary("msgcmp")
    copy = tmp_path / "controlplane"
    shutil.copytree(CONTROLPLANE, copy, ignore=shutil.ignore_patterns("*.po", "*.mo", "__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", "django", "makemessages", "--locale", "tr", "--keep-pot"]
    subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=True)
    compared = subprocess.run(
        [msgcmp, CATALOGUE, copy / "locale/django.pot"], capture_output=True, text=True, check=False
    )
    assert compared.returncode == 0, f"run makemessages and translate:\n{compared.stderr}"


# xgettext knows these names; what another calls would be in no catalogue, and the test above would not see it.
EXTRACTED = {"_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy", "pgettext", "pgettext_lazy", "npgettext"}


@pytest.mark.parametrize("root", ["controlplane", "dashboards"])
def test_texts_are_marked_by_names_that_are_extracted(root):
    line = re.compile(r"^from django\.utils\.translation import \(?(.*?)(?:\)|$)", re.MULTILINE)
    marks = re.compile(r"n?p?gettext(?:_lazy)?(?: as (\w+))?")
    unknown = [
        f"{file.relative_to(ROOT)}: {mark[0]}"
        for file in (ROOT / root).rglob("*.py")
        for imported in line.findall(file.read_text())
        for mark in marks.finditer(imported)
        if (mark[1] or mark[0]) not in EXTRACTED
    ]
    assert unknown == []


def test_the_compiled_catalogue_is_that_of_the_sources(tmp_path):
    fresh = tmp_path / "fresh.mo"
    subprocess.run([service_binary("msgfmt"), "--output-file", fresh, CATALOGUE], check=True)
    assert messages(CATALOGUE.with_suffix(".mo")) == messages(fresh), "run compilemessages"


def messages(compiled: Path) -> dict[object, str]:
    with compiled.open("rb") as file:
        catalogue: dict[object, str] = vars(gettext.GNUTranslations(file))["_catalog"]
    return {key: text for key, text in catalogue.items() if key}
