"""Pages asked for by a test's browser, their parts, and forms that are carried out."""

from __future__ import annotations

from django.test import Client

from tests.web.conftest import digest_of


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.content.decode()
    return answer.content.decode()


def part(text: str, name: str) -> str:
    return text[text.index(f'id="{name}"') :].partition("</section>")[0]


def applied(client: Client, path: str, typed: dict[str, str]) -> None:
    reviewed = client.post(path, {**typed, "step": "review"})
    assert reviewed.status_code == 200, reviewed.content.decode()
    digest = digest_of(reviewed.content.decode())
    answer = client.post(path, {**typed, "step": "apply", "digest": digest, "reason": "a test"})
    assert answer.status_code == 302, answer.content.decode()
