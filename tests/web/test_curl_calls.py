"""The shell lines that pages show: each is a call that the REST API takes."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from controlplane.core.models import Role
from tests.controlplane.conftest import Rest, rest_of  # noqa: F401 - a fixture
from tests.web.test_access import PAGES, fleet  # noqa: F401 - a fixture

# Other forms of views that PAGES has once.
MORE = {
    "receiver_kinds": "/receivers-new/",
    **{f"rollout {kind}": f"/rollouts-new/?kind={kind}&pool=chat" for kind in ("red_black", "rolling_restart")},
    **{f"rollout {kind}": f"/rollouts-new/?kind={kind}&pool=chat" for kind in ("to_spare", "from_spare", "versioned")},
}
# What is typed into the forms of new things, by page.
TYPED: dict[str, dict[str, Any]] = {
    "new_tenant": {"name": "fresh", "tpm_limit": "1000"},
    "give_temporary_limits": {"tpm_limit": "9", "expires_in_seconds": "1"},
    "new_pool": {"name": "fresh", "model": "chat-v1"},
    "new_model": {"name": "org/fresh", "max_context_tokens": "8192"},
    "new_alias": {"name": "fresh", "model": "chat-v1"},
    "new_priority_class": {"name": "fresh", "rank": "3"},
    "new_cache_policy": {"name": "fresh"},
    "new_session_limits": {"name": "fresh", "max_iterations": "9"},
    "new_route": {"name": "fresh", "pool_0": "chat", "weight_0": "100"},
    "new_node": {"name": "rack-8"},
    "new_engine": {"name": "fresh", "pool": "chat", "url": "http://10.0.0.9:8000", "served_model": "m"},
    "new_override": {"subject": "pool/chat", "state": "open", "lasts": "3600"},
    "comment_on_incident": {"text": 'it\'s "hot" & <loud>'},
    "new_silence": {"name": "fresh"},
    "new_window": {"name": "fresh", "matchers": 'pool="chat"', "days": ["mon"], "starts": "02:00", "ends": "03:00"},
    "new_alert_route": {"name": "fresh"},
    "new_inhibition": {"name": "fresh", "source_matchers": 'node="a"', "target_matchers": 'node="b"'},
    "new_rule": {"name": "Fresh", "expr": 'kv{pool="chat"} > 0.9'},
    "new_lever_policy": {"name": "fresh", "detector": "kv_exhausted", "lever": "kv_admit"},
    "edit_tenant": {"weight": "7"},
}
# Nothing is asked of REST that a form asks; and where a file goes with the line, it is a person's.
WITH_FILE = {"import_configuration", "import_rules"}


class FirstForm(HTMLParser):
    """The fields of a page's form that leads to a review, as a browser sends them when nothing is typed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self.leads_to_review = False
        self._is_within = False
        self._select = self._text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "form":
            self._is_within = given.get("method") == "post" and "fields" in (given.get("class") or "").split()
        elif self._is_within and tag == "button" and value == "review":
            self.leads_to_review = True
        elif self._is_within and tag == "input" and name:
            if given.get("type") not in ("checkbox", "radio") or "checked" in given:
                self.fields.setdefault(name, []).append(value)
        elif self._is_within and tag == "select":
            self._select = name
        elif self._select and tag == "option" and ("selected" in given or self._select not in self.fields):
            self.fields[self._select] = [value]
        elif self._is_within and tag == "textarea":
            self._text, self.fields[name] = name, [""]

    def handle_data(self, data: str) -> None:
        if self._text:
            self.fields[self._text] = [self.fields[self._text][0] + data]

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_within = False
        elif tag == "select":
            self._select = ""
        elif tag == "textarea":
            self._text = ""


def commands(page: str) -> Iterator[list[str]]:
    """The words of each command that a page shows."""
    for shown in re.findall(r'<pre id="curl-[a-z0-9-]+">(.*?)</pre>', page, re.DOTALL):
        for line in html.unescape(shown).replace("\\\n", "").splitlines():
            yield shlex.split(line)


def body_of(words: list[str]) -> Any:
    return json.loads(words[words.index("--data") + 1]) if "--data" in words else None


def sent(rest: Rest, words: list[str]) -> Any:
    """What the call is answered; of a write all is checked and nothing kept."""
    [address] = [word for word in words if word.startswith("http://testserver/")]
    parts = urlsplit(address)
    path = f"{parts.path.removeprefix('/api/v1')}?{parts.query}"
    if "reason=" in path and "dry_run=" not in path:
        path += "&dry_run=true"
    return rest.call(words[words.index("-X") + 1] if "-X" in words else "GET", path, body_of(words))


def faults_of(words: list[str], answer: Any) -> list[str]:
    """What is wrong with a line of a form that is not filled in: it may lack what a person gives, and nothing else."""
    if answer.status_code < 300 or (answer.status_code == 409 and not answer.json()["problems"]):
        # Done, or not while something else of it runs.
        return []
    if answer.status_code == 404:
        # Of a name in capitals.
        return [] if re.search(r"[/=][A-Z]+(&|\?|/|$|')", " ".join(words)) else [f"404 {words}"]
    problems = answer.json()["problems"]
    return [
        f"{problem['path']}: {problem['message']} ({body_of(words)})"
        for problem in problems
        if _is_given(body_of(words), problem["path"].strip("/").split("/"))
    ] or ([] if problems else [f"{answer.status_code} {answer.json()['detail']}"])


def _is_given(body: Any, path: list[str]) -> bool:
    """Whether a body holds what a problem is about, and no word in capitals for it."""
    for step in path:
        if not isinstance(body, dict) or step not in body:
            return False
        body = body[step]
    return not (isinstance(body, str) and body.isupper())


# Some two hundred pages and their reviews.
@pytest.mark.timeout(600)
def test_every_line_is_taken_as_it_stands_or_lacks_what_a_person_gives(
    fleet: dict[str, object],  # noqa: F811
    admin: Client,
    rest_of: Callable[[Role | None], Rest],  # noqa: F811
) -> None:
    rest = rest_of(Role.ADMIN)
    wrong, unseen = list[str](), dict(TYPED)
    for name, path in {**{name: path for name, (path, _role) in PAGES.items()}, **MORE}.items():
        path = path.format(**fleet)
        page = admin.get(path).content.decode()
        lines = list(commands(page)) if name not in WITH_FILE else []
        if name in MORE and not lines:
            wrong.append(f"{name} shows no call")
        wrong += [f"{name}: {fault}" for words in lines for fault in faults_of(words, sent(rest, words))]
        form = FirstForm(page)
        if not form.leads_to_review or name in WITH_FILE:
            continue
        typed = unseen.pop(name, {})
        review = admin.post(path, {**form.fields, **typed, "step": "review"})
        if review.status_code != 200:
            wrong += [f"{name} refuses what was typed: {_told(review.content.decode())}"] if typed else []
            continue
        for words in commands(review.content.decode()):
            answer = sent(rest, words)
            if answer.status_code >= 300:
                wrong.append(f"{name}, reviewed: {answer.status_code} {answer.content.decode()} to {words}")
    assert not wrong, "\n".join(wrong)
    assert not unseen


def _told(page: str) -> list[str]:
    return re.findall(r'<ul class="errorlist"[^>]*>(.*?)</ul>', page)
