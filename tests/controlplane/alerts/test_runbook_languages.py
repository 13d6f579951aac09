"""Runbooks in the reader's language: each is whole, and what is typed or looked up in one is the same in all."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from django.utils.translation import gettext, override

from controlplane.alerts import runbooks
from controlplane.web.navigation import GROUPS

# They ask no database.
pytestmark = pytest.mark.own_servers
FOLDER = Path(runbooks.__file__).parent / "pack/runbooks"
WRITTEN = {file.name: file.read_text() for file in sorted(FOLDER.glob("*.md"))}
TURKISH = {file.name: file.read_text() for file in sorted((FOLDER / "tr").glob("*.md"))}
LEADS = {
    "Why it matters.": "Neden önemli.",
    "Look at": "Bakılacak yerler:",
    "Do": "Yapılacaklar:",
    "False alarm.": "Yanlış alarm.",
}
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]+`")
BOLD = re.compile(r"\*\*(.+?)\*\*")
ITALIC = re.compile(r"(?<!\*)\*([^*\n]+)\*(?!\*)")
NUMBER = re.compile(r"\d+")
LINK = re.compile(r"\]\(([^)]+)\)")
SETTING = re.compile(r"\b[A-Z]+_[A-Z0-9_]+")
# Such as ECC, XID and NODE; a language may say them more often than another.
ABBREVIATION = re.compile(r"\b[A-Z]{3,}")
SHAPES = (("#", r"#+ "), ("-", r"- "), ("1.", r"\d+\. "), ("|", r"\|"), ("```", r"```"))


def shape(text: str) -> list[str]:
    """What kind of thing begins where: headings by their depth, paragraphs, items, rows of tables, fences."""
    found = []
    after_blank = True
    for line in FENCE.sub("```", text).splitlines():
        kind = next((kind for kind, pattern in SHAPES if re.match(pattern, line)), "")
        if kind == "#":
            found.append(line.split(" ")[0])
        elif kind or (line and after_blank):
            found.append(kind or "paragraph")
        after_blank = not line
    return found


def sentences(text: str) -> list[int]:
    """How many end in each paragraph, item and row. A number with a full stop is an ordinal, or an item."""
    parts = re.split(r"\n\n|\n(?=- |\d+\. |\|)", CODE.sub("code", FENCE.sub("", text)))
    return [len(re.findall(r"(?:[^\W\d]|[)*%\]])[.?](?=\s|$)", part)) for part in parts]


def prose(text: str) -> str:
    return CODE.sub("", FENCE.sub("", text))


def paragraphs(text: str) -> list[str]:
    """What is to be read, without what is the same in every language."""
    body = text.split("\n", 1)[1]
    return [part for part in re.split(r"\n\n", prose(body)) if re.search(r"[a-zç-ü]{4} ", part)]


def test_each_is_there_in_turkish_and_none_is_without_its_original() -> None:
    assert TURKISH.keys() == WRITTEN.keys()


@pytest.mark.parametrize("name", WRITTEN)
def test_it_has_the_same_parts_in_the_same_order(name: str) -> None:
    written, turkish = WRITTEN[name], TURKISH[name]
    assert turkish.splitlines()[0] == written.splitlines()[0]
    assert shape(turkish) == shape(written)
    assert sentences(turkish) == sentences(written)
    assert BOLD.findall(turkish) == [LEADS[lead] for lead in BOLD.findall(written)]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_typed_or_looked_up_is_the_same_byte_for_byte(name: str) -> None:
    written, turkish = WRITTEN[name], TURKISH[name]
    assert FENCE.findall(turkish) == FENCE.findall(written)
    for kind in (CODE, LINK, SETTING, NUMBER):
        assert Counter(kind.findall(FENCE.sub("", turkish))) == Counter(kind.findall(FENCE.sub("", written)))
    assert set(ABBREVIATION.findall(turkish)) == set(ABBREVIATION.findall(written))


@pytest.mark.parametrize("name", WRITTEN)
def test_no_paragraph_was_left_in_english(name: str) -> None:
    assert set(paragraphs(TURKISH[name])) & set(paragraphs(WRITTEN[name])) == set()
    assert not re.search(r"\b(?:the|and|is|of|it)\b", prose(TURKISH[name]).replace("out of memory", ""))


@pytest.mark.parametrize("name", WRITTEN)
def test_pages_and_buttons_are_called_as_the_reader_sees_them(name: str) -> None:
    with override("en"):
        pages = {str(entry.label) for _title, group in GROUPS for entry in group}
    assert set(re.findall(r"\bpage \*([^*]+)\*", WRITTEN[name])) <= pages
    named = [each.replace("\n", " ") for each in ITALIC.findall(WRITTEN[name])]
    with override("tr"):
        expected = {gettext(each) for each in named if gettext(each) != each}
    turkish = [each.replace("\n", " ") for each in ITALIC.findall(TURKISH[name])]
    assert len(turkish) == len(named)
    assert expected <= set(turkish)


def test_a_link_leads_somewhere_from_where_the_documentation_has_it() -> None:
    docs = Path(__file__).parents[3] / "docs/runbooks"
    for name, text in runbooks.pages().items():
        for link in LINK.findall(text):
            assert ((docs / name).parent / link.split("#")[0]).resolve().exists(), f"{name}: {link}"


def test_without_a_text_in_the_readers_language_it_is_shown_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tr").mkdir()
    for name in ("kv-cache-full.md", "queue-deep.md"):
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "tr/queue-deep.md").write_text("# Kuyruk\n")
    monkeypatch.setattr(runbooks, "_FOLDER", tmp_path)
    assert runbooks.page("kv-cache-full", "tr") == ("# kv-cache-full.md\n", "en")
    assert runbooks.page("queue-deep", "tr") == ("# Kuyruk\n", "tr")
    assert runbooks.page("queue-deep", "en") == runbooks.page("queue-deep") == ("# queue-deep.md\n", "en")
    assert runbooks.page("tr/queue-deep", "tr") is None
    assert runbooks.page("no-such-alert", "tr") is None


def test_the_list_says_the_first_sentence_of_each() -> None:
    for language, texts in (("en", WRITTEN), ("tr", TURKISH)):
        entries = [entry for _title, found in runbooks.by_theme(language) for entry in found]
        assert {f"{entry.slug}.md" for entry in entries} == texts.keys()
        for entry in entries:
            paragraph = texts[f"{entry.slug}.md"].split("\n\n")[1].replace("\n", " ")
            assert entry.language == language
            assert paragraph.startswith(entry.says)
            assert not re.search(r"\w[.:] [A-ZÇĞİÖŞÜ]", entry.says), entry.says
