from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpu_agent.host import sockets
from gpu_agent.host.proc import PROC
from gpu_agent.host.sockets import TooManySockets, read_sockets
from tests.gpu_agent.host.proc_tree import ProcTree, row
from tests.services import wait_for


def test_real_connections_are_counted_by_state():
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]

        def counts():
            return read_sockets(PROC, [port], range(0)).by_port[port].connections

        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3)]
        served = stack.enter_context(listener.accept()[0])
        assert counts()["established"] == 3, "the clients' own ends are not counted"
        assert counts()["backlog"] == 2
        clients[0].close()
        wait_for(lambda: counts()["close_wait"] == 1, 10, "the state of a connection that its client closed")
        served.close()
        wait_for(lambda: counts()["close_wait"] == 0, 10, "its end")


def test_both_tables_count_and_ports_of_others_do_not(tmp_path):
    tree = ProcTree(tmp_path)
    tree.tcp([row(8000, "0A", "7", backlog=5), row(8000, "01"), row(8000, "06"), row(8001, "01"), row(40_000, "01")])
    tree.tcp([row(8000, "0A", "8", address="0" * 32), row(8000, "08"), row(40_000, "06"), row(40_001, "01")], "tcp6")
    found = read_sockets(tree.root, [8000], range(40_000, 41_000))
    assert found.by_port.keys() == {8000}
    assert found.by_port[8000].listening == {"7", "8"}
    assert found.by_port[8000].connections == {"backlog": 5, "established": 1, "time_wait": 1, "close_wait": 1}
    assert found.ephemeral_ports == 2, "a port counts once, however many connections it has"


def test_a_port_at_which_nothing_happens_is_there(tmp_path):
    found = read_sockets(ProcTree(tmp_path).root, [9], range(0))
    assert (found.by_port[9].connections, found.by_port[9].listening) == ({}, set())


def test_an_endless_table_is_refused(tmp_path, monkeypatch):
    tree = ProcTree(tmp_path)
    tree.tcp([row(8000, "01")] * 20)
    monkeypatch.setattr(sockets, "_LIMIT_BYTES", 1000)
    with pytest.raises(TooManySockets, match="longer than 1000 bytes"):
        read_sockets(tree.root, [8000], range(0))


def test_no_table_at_all_is_an_error(tmp_path: Path):
    with pytest.raises(OSError, match="tcp"):
        read_sockets(tmp_path, [8000], range(0))
