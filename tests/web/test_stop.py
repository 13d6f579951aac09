"""The web process ends when it is asked to, whoever looks at its pages."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode

from controlplane.serve import STOP_SECONDS_MAX
from tests.web.site import PASSWORD, Site, running_site

# A page's stream lasts minutes; an end that waited for it would take that long.
STOP_SECONDS = 5


def browser_of(site: Site, name: str) -> Callable[[str], object]:
    """Opens addresses of the site with the cookies of a person who is logged in."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    page = opener.open(f"{site.url}/log-in/").read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert token
    form = {"csrfmiddlewaretoken": token[1], "username": name, "password": PASSWORD}
    opener.open(f"{site.url}/log-in/", urlencode(form).encode(), timeout=20)
    return lambda path: opener.open(f"{site.url}{path}", timeout=20)


def test_it_ends_while_a_page_is_open_and_closes_its_stream(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        stream = browser_of(site, "vera")("/live")
        lines = iter(stream)  # type: ignore[call-overload]
        assert next(line for line in lines if line.startswith(b"event:")) == b"event: convergence\n"
        assert site.process.stop(STOP_SECONDS) == 0
        # The end is a proper one: a cut stream would raise here.
        assert not [line for line in lines if line.startswith(b"event:")]


def test_it_ends_although_a_client_never_sends_the_rest_of_its_body(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        with socket.create_connection(("127.0.0.1", int(site.url.rpartition(":")[2]))) as client:
            headers = b"Host: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n"
            client.sendall(b"POST /log-in/ HTTP/1.1\r\n" + headers + b"\r\nthe first part")
            # It reads, and waits for the rest.
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")
            assert site.process.stop(STOP_SECONDS_MAX + 2) == 0
        assert "did not end within" in site.process.log_tail()
