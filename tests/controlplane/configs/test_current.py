"""The configuration as writes judge it, in a process that follows no revisions, as a worker."""

from __future__ import annotations

from collections.abc import Callable

from controlplane.configs.current import current
from controlplane.configs.heads import Heads
from controlplane.configs.hub import heads
from controlplane.configs.publisher import publish
from tests.controlplane.conftest import Rest


def test_only_what_changed_is_read_again(fleet: Rest, newest: Callable[[], Heads]) -> None:
    fleet.post("/tenants", {"name": "labs"})
    newest()
    Heads.__init__(heads, heads._decrypt)
    before = current(["tenants"])
    fleet.patch("/tenants/acme", {"tpm_limit": 5})
    publish()
    after = current(["tenants"])
    assert after.base("tenants")["labs"] is before.base("tenants")["labs"]
    assert after.section("tenants")["acme"]["tpm_limit"] == 5
    assert heads.stored() is None
