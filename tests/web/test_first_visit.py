"""What a browser that comes for the first time loads: it must not be much, since a person waits for it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

MAX_BYTES = 2_000_000
# Of all charts of a page, compressed, over a fleet of 50 nodes (bench/web.py).
FIGURES_BYTES = 90_000
_FILES = re.compile(r'(?:src|href)="([^"]+\.(?:js|css|svg))"')
# What Dash's scripts load once they see a graph.
_OF_GRAPHS = ("dash/dcc/async-graph.js", "plotly/package_data/plotly.min.js")


def loaded_bytes(client: Client, address: str) -> int:
    """Of a file as the server sends it: its own static files as they are, Dash's compressed."""
    if address.startswith("/static/"):
        found = finders.find(address.removeprefix("/static/"))
        assert isinstance(found, str), address
        return Path(found).stat().st_size
    answer = client.get(address, headers={"accept-encoding": "gzip"})
    assert answer.status_code == 200, address
    assert answer["Content-Encoding"] == "gzip", address
    return len(answer.content)


@pytest.mark.parametrize(
    ("path", "more", "most"),
    [("/overview/", (), 150_000), ("/dashboards/", _OF_GRAPHS, MAX_BYTES - FIGURES_BYTES)],
)
def test_a_first_visit_loads_little(path: str, more: tuple[str, ...], most: int, viewer: Client) -> None:
    page = viewer.get(path).content
    addresses = {*_FILES.findall(page.decode()), *(f"/dashboards/_dash-component-suites/{name}" for name in more)}
    assert len(addresses) > 4
    assert len(gzip.compress(page)) + sum(loaded_bytes(viewer, each) for each in addresses) <= most
