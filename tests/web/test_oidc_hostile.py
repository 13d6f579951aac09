"""A provider that hangs, floods, redirects or answers nonsense: a page says so, and no secret goes astray."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

from controlplane.core.models import User
from controlplane.web import oidc
from tests.web.test_oidc import BACK, BEGIN, CLIENT_SECRET

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
TIMEOUT_SECONDS = 1
NESTED = b'{"more":' + b"[" * 200_000


class Provider:
    """As good as any, but for what `astray` says of a path: status, Location, and parts of the body or waits."""

    def __init__(self) -> None:
        self.astray: dict[str, tuple[int, str, list[bytes | float]]] = {}
        self.claims: dict[str, Any] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.ended = Event()
        self.nonce = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"])))

            def do_GET(self) -> None:
                self._answer(b"")

            def _answer(self, asked: bytes) -> None:
                path = self.path.partition("?")[0]
                outer.asked.append((path, asked + str(self.headers).encode()))
                status, location, parts = outer.astray.get(path) or (200, "", [outer.right(path)])
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.end_headers()
                try:
                    for part in parts:
                        if isinstance(part, bytes):
                            self.wfile.write(part)
                        elif outer.ended.wait(part):
                            return
                except OSError:
                    pass

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def right(self, path: str) -> bytes:
        now = int(time.time())
        claims = {"iss": self.url, "sub": "grace", "aud": "headworks", "iat": now, "exp": now + 60, "nonce": self.nonce}
        said: dict[str, Any] = {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                **{f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token", "userinfo")},
                "jwks_uri": f"{self.url}/keys",
            },
            "/keys": {"keys": [json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))]},
            "/token": {"access_token": "a-token", "id_token": jwt.encode({**claims, **self.claims}, KEY, "RS256")},
            "/userinfo": {"sub": (claims | self.claims)["sub"], "preferred_username": "grace", "groups": ["staff"]},
        }
        return json.dumps(said[path]).encode()

    def end(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def provider(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    running = Provider()
    for name, value in {
        "ISSUER": running.url,
        "CLIENT_SECRET": CLIENT_SECRET,
        "ROLES": '{"staff": {"role": "operator"}}',
        "TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
    }.items():
        monkeypatch.setenv(f"HEADWORKS_OIDC_{name}", value)
    monkeypatch.setattr(oidc, "_kept", {})
    yield running
    running.end()


def log_in(provider: Provider) -> Any:
    """Begin, and come back with a code where the provider could be asked at all."""
    browser = Client()
    there = browser.get(BEGIN)
    if there.status_code != 302:
        return there
    asked = parse_qs(urlsplit(there["Location"]).query)
    provider.nonce = asked["nonce"][0]
    return browser.get(BACK, {"code": "a-code", "state": asked["state"][0]})


PATHS = ["/.well-known/openid-configuration", "/keys", "/token", "/userinfo"]


def test_a_provider_that_answers_right_lets_in(provider: Provider) -> None:
    assert log_in(provider).status_code == 302
    assert User.objects.get().username == "grace"
    assert [path for path, _ in provider.asked] == ["/.well-known/openid-configuration", "/token", "/keys", "/userinfo"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([b""], 502),
        ([b"<html>"], 502),
        ([b"[]"], 502),
        ([b'"text"'], 502),
        ([b"null"], 502),
        ([b"{}"], 502),
        ([b"\xff\xfe"], 502),
        ([NESTED], 502),
        ([b'{"more":"'] + [b"x" * 1_000_000] * 10, 502),
        ([30.0], 503),
        ([b"{", 30.0], 503),
        ([b" ", 0.2] * 100, 503),
    ],
    ids=["empty", "page", "list", "text", "null", "nothing", "bytes", "nested", "10 MB", "silent", "hangs", "drips"],
)
def test_an_answer_that_is_none_is_a_page_in_time(
    provider: Provider, path: str, parts: list[bytes | float], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    provider.astray[path] = (200, "", parts)
    began = time.monotonic()
    answer = log_in(provider)
    assert time.monotonic() - began < 5 * TIMEOUT_SECONDS
    assert answer.status_code == status, answer.content.decode()[-800:]
    assert not User.objects.exists()
    told = answer.content.decode() + caplog.text
    assert CLIENT_SECRET not in told
    assert "a-token" not in told


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed_with_what_we_sent(provider: Provider, path: str, status: int) -> None:
    provider.astray[path] = (status, f"{provider.url}/elsewhere", [provider.right(path)])
    provider.astray["/elsewhere"] = (200, "", [provider.right(path)])
    assert log_in(provider).status_code == 502
    assert "/elsewhere" not in [path for path, _ in provider.asked]
    assert not User.objects.exists()


@pytest.mark.parametrize("subject", ["x" * 256, "a\x00b", ""])
def test_a_subject_that_cannot_be_one_is_refused(provider: Provider, subject: str) -> None:
    provider.claims = {"sub": subject}
    assert log_in(provider).status_code == 502
    assert not User.objects.exists()
