from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.addresses import ALLOWED_SETTING, address_refusal, url_refusal

EVERYWHERE = tuple(map(ipaddress.ip_network, ("0.0.0.0/0", "::/0")))
RACK = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fc00::/7"))


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/services/T1/B2",
        "http://alertmanager:9093/api",
        "https://a_b.example.com.",
        "https://93.184.216.34:8443/x",
        "https://[2606:2800:220:1::1]/x",
        "http://10.1.2.3/x",
        "http://[fd12::1]:81",
    ],
)
def test_a_url_to_a_name_or_to_an_address_that_may_be_reached_is_taken(url):
    assert url_refusal(url, RACK) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.com/",
        "//example.com/",
        "https:/example.com",
        "https://",
        "https://user:secret@example.com/",
        "https://token@example.com/",
        "https://example.com/?key=secret",
        "https://example.com/#part",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:port/",
        "https://exa mple.com/",
        "https://example.com/a b",
        "https://example.com/ä",
        "https://bücher.example/",
        "https://-x.example/",
        "https://a..b/",
        f"https://{'a' * 64}.example/",
        "https://exam\nple.com/",
        "https://example.com\\@10.0.0.1/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https://example.com/" + "x" * 500,
    ],
)
def test_a_url_of_another_form_is_refused_wherever_it_leads(url):
    assert url_refusal(url, EVERYWHERE)


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "017700000001", "127.1", "0177.0.0.1", "127.0.0.1.", "0x7f.1", "1.2.3.4.5"]
)
def test_an_address_in_a_form_that_only_resolvers_read_is_refused(host):
    assert "write an address as" in (url_refusal(f"http://{host}/", EVERYWHERE) or "")


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.0.1", "fe80::1", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192",
        "168.63.129.16", "0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "64:ff9b:1::a9fe:a9fe",
        "::ffff:0:a9fe:a9fe",
    ],
)  # fmt: skip
def test_metadata_and_link_local_addresses_are_refused_even_from_an_allowed_network(address):
    assert "which no webhook may reach" in (address_refusal(address, EVERYWHERE) or "")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "fec0::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::", "64:ff9b:1::a00:1", "::10.0.0.1",
        "::ffff:0:10.0.0.1", "64:ff9b:1::808:808",
    ],
)  # fmt: skip
def test_private_and_loopback_addresses_need_the_allow_list(address):
    assert ALLOWED_SETTING in (address_refusal(address, ()) or "")
    assert address_refusal(address, EVERYWHERE) is None


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_in_every_form_that_ipv6_has_for_it(address):
    def kind(text: str) -> str | None:
        refusal = address_refusal(text, RACK)
        return refusal and refusal.split(" is a ", 1)[1]

    for text in (
        f"::ffff:{address}",
        str(ipaddress.IPv6Address(int(ipaddress.ip_address("64:ff9b::")) | int(address))),
    ):
        assert kind(text) == kind(str(address))


@given(st.ip_addresses())
def test_what_is_not_public_is_reached_only_from_the_allow_list(address):
    if address_refusal(str(address), ()) is None:
        assert not (address.is_private and not address.is_global)
        assert not address.is_loopback
        assert not address.is_link_local
