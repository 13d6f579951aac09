"""Runbooks in the browser: the list, a page with what fires now, and the way there from an incident and a message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.alerts import runbooks
from controlplane.alerts.services import alerts
from controlplane.web.shown.runbook_text import as_html

PAGES = runbooks.pages()
ALL = sorted(PAGES.keys() - {"index.md"})
WRITTEN = {name for name in ALL if "/" not in name}


def leads_of(page: str) -> list[str]:
    return re.findall(r"<p><strong>([^<]+)</strong>", page)


def test_the_list_leads_to_every_runbook(viewer: Client) -> None:
    page = viewer.get("/docs/runbooks/").content.decode()
    assert {f"{slug}.md" for slug in re.findall(r'href="/docs/runbooks/([a-z0-9-]+)/"', page)} == WRITTEN


def test_one_shows_what_fires_of_it_now_and_an_incident_leads_to_it(viewer: Client) -> None:
    alert, _ = alerts.open_alert(
        labels={"alertname": "KvCacheFull", "engine": "e1"}, source="rule", severity="warning", title="full",
        annotations={"runbook_url": "docs/runbooks/kv-cache-full.md"}, at=timezone.now(), text="full",
    )  # fmt: skip
    page = viewer.get("/docs/runbooks/kv-cache-full/").content.decode()
    assert f'href="/incidents/{alert.incident.pk}/"' in page
    assert "It fires now" not in viewer.get("/docs/runbooks/queue-deep/").content.decode()
    assert 'href="/docs/runbooks/kv-cache-full/"' in viewer.get(f"/incidents/{alert.incident.pk}/").content.decode()


def test_a_reader_of_turkish_reads_turkish_at_the_same_address(viewer: Client) -> None:
    english = viewer.get("/docs/runbooks/kv-cache-full/").content.decode()
    viewer.cookies["django_language"] = "tr"
    turkish = viewer.get("/docs/runbooks/kv-cache-full/").content.decode()
    assert leads_of(english) == ["Why it matters.", "Look at", "Do", "False alarm."]
    assert leads_of(turkish) == ["Neden önemli.", "Bakılacak yerler:", "Yapılacaklar:", "Yanlış alarm."]
    assert re.findall(r"<pre.*?</pre>", turkish, re.DOTALL) == re.findall(r"<pre.*?</pre>", english, re.DOTALL)
    assert "İngilizce" not in turkish
    listed = viewer.get("/docs/runbooks/").content.decode()
    assert re.findall(r'<td class="words said"[^>]* lang="(\w+)">', listed) == ["tr"] * len(WRITTEN)


def test_without_a_text_in_the_readers_language_the_page_says_so(
    viewer: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kv-cache-full.md").write_text("# KvCacheFull\n\nIt is full.\n")
    monkeypatch.setattr(runbooks, "_FOLDER", tmp_path)
    assert "in English alone" not in viewer.get("/docs/runbooks/kv-cache-full/").content.decode()
    viewer.cookies["django_language"] = "tr"
    page = viewer.get("/docs/runbooks/kv-cache-full/").content.decode()
    assert "yalnızca İngilizce" in page
    assert '<section class="card" lang="en">' in page
    assert "It is full." in page
    listed = viewer.get("/docs/runbooks/").content.decode()
    assert 'lang="en">It is full' in listed


def test_one_that_there_is_not_is_not_found(viewer: Client) -> None:
    assert viewer.get("/docs/runbooks/no-such-alert/").status_code == 404


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a **b** `c*d*` *e*", "<p>a <strong>b</strong> <code>c*d*</code> <em>e</em></p>"),
        ("<script>`<b>`", "<p>&lt;script&gt;<code>&lt;b&gt;</code></p>"),
        ("1. one\n2. two\n   goes on", "<ol><li>one</li><li>two goes on</li></ol>"),
        ("- [Other](queue-deep.md) [Docs](../rest.md)", '<li><a href="/docs/runbooks/queue-deep/">Other</a> Docs</li>'),
        ("```promql\na > 1\n\nb\n```", '<pre class="shell">a &gt; 1\n\nb</pre>'),
        ("| a | b |\n|---|---|\n| 1 | `2` |", "<tr><td>1</td><td><code>2</code></td></tr>"),
    ],
)  # fmt: skip
def test_the_markdown_of_runbooks(written: str, shown: str) -> None:
    assert shown in as_html(f"# Name\n\n{written}")


@pytest.mark.parametrize("name", ALL)
def test_nothing_of_a_page_is_left_as_it_was_written(name: str) -> None:
    page = as_html(PAGES[name])
    text = re.sub(r"<(pre|code)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"\*\*|`|\]\(|^#", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("url", "public", "address"),
    [
        ("docs/runbooks/queue-deep.md", "https://hw.example", "https://hw.example/docs/runbooks/queue-deep/"),
        ("docs/runbooks/queue-deep.md", "", ""),
        ("https://wiki.example/x", "", "https://wiki.example/x"),
        ("docs/runbooks/../../x.md", "https://hw.example", ""),
        ("javascript:alert(1)", "https://hw.example", ""),
    ],
)
def test_where_a_rule_leads(url: str, public: str, address: str) -> None:
    assert runbooks.address(url, public) == address
