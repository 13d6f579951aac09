"""Who sent a request, seen through proxies."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from controlplane import settings_rows as rows
from controlplane.core.client_address import client_address
from controlplane.core.middleware import see_client_address
from controlplane.core.security import address_of
from wire.settings import BadSetting

TRUSTED = (ip_network("10.0.0.0/24"), ip_network("127.0.0.1"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        # Nobody in between: what the client says of itself counts for nothing.
        ("192.0.2.7", "", "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", "192.0.2.7"),
        # One proxy, two proxies, and a client that made up the first entry.
        ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "192.0.2.7, 10.0.0.9", "192.0.2.7"),
        ("127.0.0.1", "198.51.100.1, 192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "10.0.0.3, 192.0.2.7, 10.0.0.9", "192.0.2.7"),
        # The proxy itself calls.
        ("10.0.0.1", "", "10.0.0.1"),
        ("127.0.0.1", "10.0.0.9", "10.0.0.9"),
        # What is no address ends the walk.
        ("10.0.0.1", "192.0.2.7, unknown", "10.0.0.1"),
        ("10.0.0.1", ",", "10.0.0.1"),
        # IPv6, and IPv4 as a socket for both shows it.
        ("fd00::1", "2001:db8::7", "2001:db8::7"),
        ("::ffff:10.0.0.1", "192.0.2.7", "192.0.2.7"),
        # A server on a Unix socket has no address to give.
        ("", "192.0.2.7", ""),
    ],
)
def test_the_client_is_the_last_address_that_a_trusted_proxy_was_called_from(peer, forwarded_for, client):
    assert client_address(peer, forwarded_for, TRUSTED) == client


@given(st.lists(st.ip_addresses().map(str) | st.text(max_size=8), max_size=5).map(",".join))
def test_without_a_trusted_proxy_nothing_moves_the_address(forwarded_for):
    assert client_address("192.0.2.7", forwarded_for, ()) == "192.0.2.7"


def seen(monkeypatch, trusted: str, peer: str, forwarded_for: str) -> str:
    monkeypatch.setenv(rows.TRUSTED_PROXIES.name, trusted)
    request = RequestFactory().get("/", REMOTE_ADDR=peer, headers={"x-forwarded-for": forwarded_for})

    def answer(passed: HttpRequest) -> HttpResponse:
        return HttpResponse(address_of(passed))

    response = see_client_address(answer)(request)
    assert isinstance(response, HttpResponse)
    return response.content.decode()


def test_every_request_has_the_clients_address(monkeypatch):
    assert seen(monkeypatch, "10.0.0.0/24", "10.0.0.1", "192.0.2.7") == "192.0.2.7"
    assert seen(monkeypatch, "", "10.0.0.1", "192.0.2.7") == "10.0.0.1"


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.1/24", "10.0.0.0/33"])
def test_what_is_no_network_is_refused_by_name(monkeypatch, text):
    monkeypatch.setenv(rows.TRUSTED_PROXIES.name, text)
    with pytest.raises(BadSetting, match=r"HEADWORKS_TRUSTED_PROXIES: .* give addresses or networks"):
        rows.TRUSTED_PROXIES.read()
