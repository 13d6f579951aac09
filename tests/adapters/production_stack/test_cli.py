"""How the adapter starts, and what it says where it cannot."""

from __future__ import annotations

import pytest

from adapters.production_stack.cli import main


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_without_a_join_token_it_says_where_to_put_one(capsys):
    assert main(["--name", "router"]) == 1
    said = capsys.readouterr().err
    assert "headworks-router-config: not enrolled yet" in said
    assert "join-token" in said


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("HEADWORKS_ROUTER_CONFIG_ROUTING_LOGIC", "kvaware", "roundrobin, session, prefixaware"),
        ("HEADWORKS_ROUTER_CONFIG_HEALTH_CHECKS", "maybe", "true or false"),
        ("HEADWORKS_ROUTER_CONFIG_CONTROL_URL", "headworks.example", "http(s)://"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(monkeypatch, capsys, name, text, right):
    monkeypatch.setenv(name, text)
    assert main(["--name", "router"]) == 2
    said = capsys.readouterr().err
    assert name in said
    assert right in said


def test_a_name_that_cannot_be_a_targets_is_refused(capsys):
    assert main(["--name", "Röuter"]) == 1
    assert "cannot be a gateway's name" in capsys.readouterr().err
