from __future__ import annotations

from simulator.grammars import Grammars


def test_the_first_request_with_a_schema_waits_and_later_ones_do_not() -> None:
    grammars = Grammars(2.0)
    assert grammars.wait_seconds(b"a", 10.0) == 2.0
    assert grammars.wait_seconds(b"a", 11.5) == 0.5
    assert grammars.wait_seconds(b"a", 12.5) == 0
    assert grammars.wait_seconds(b"b", 12.5) == 2.0


def test_a_request_without_a_schema_never_waits() -> None:
    assert Grammars(2.0).wait_seconds(b"", 10.0) == 0
    assert Grammars(0.0).wait_seconds(b"a", 10.0) == 0
