"""Row 20: GPUs that fail, slow themselves down, or are cut into pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.fields import iso
from controlplane.diagnosis.detector import Command, Finding, Fleet
from controlplane.diagnosis.detectors.hardware import Hardware
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit, wider
from tests.controlplane.diagnosis.detectors.wider import GPU, xid
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram

WHICH: Any = {"node": "n1", "gpu": "0", "UUID": GPU}
DETECTOR = Hardware()


def series(
    hot: float = 0, braked: float = 0, uncorrected: float = 0.0, recovery: float = 0, lanes: float = 16, mig: float = 0,
    tpot: float = 0.02, capped: float = 0,
) -> list[Any]:  # fmt: skip
    found = [
        gauge("headworks_gpu_up", 1, **WHICH),
        gauge("headworks_gpu_clock_event_active", hot, reason="hw_thermal_slowdown", **WHICH),
        gauge("headworks_gpu_clock_event_active", braked, reason="hw_power_brake_slowdown", **WHICH),
        gauge("headworks_gpu_clock_event_active", capped, reason="sw_power_cap", **WHICH),
        gauge("DCGM_FI_DEV_GPU_TEMP", 91, **WHICH),
        gauge("DCGM_FI_DEV_POWER_USAGE", 700, **WHICH),
        counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", uncorrected, **WHICH),
        gauge("headworks_gpu_recovery_action", recovery, **WHICH),
        gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", lanes, **WHICH),
        gauge("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 16, **WHICH),
        *histogram("headworks_gateway_tpot_seconds", {tpot: 2.0}, pool="chat", tenant="acme", priority_class="c"),
    ]
    return found + ([gauge("headworks_gpu_mig_instances", mig, **WHICH)] if mig else [])


def of(*events: Any, allowed: tuple[str, ...] = (), engines: tuple[str, ...] = ("e1", "e2"), **node: Any) -> Fleet:
    acts = {"": list(allowed), **{engine: ["drain", "stop"] for engine in engines}}
    return helpers.fleet(
        [helpers.pool(engines=engines)], nodes=[helpers.node(allowed_acts=acts, **node)], gpus=[helpers.gpu(uuid=GPU)],
        engines=[helpers.engine(engine) for engine in engines], events=events,
    )  # fmt: skip


def found(fleet: Fleet | None = None, **given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), fleet or of())


def keyed(finding: Finding) -> dict[str, Any]:
    return {lever.key: lever for lever in finding.levers}


FELL = xid(79, "cordon_reboot", "critical")
ECC = xid(48, "cordon_drain_reset", "critical")


def test_hardware_that_is_well_is_not_found():
    assert not found()
    # The usual way of a card to keep within its limit.
    assert not found(capped=1)


def test_a_fatal_xid_on_a_node_that_takes_work_is_found_and_cordoned():
    (finding,) = found(of(FELL))
    assert (finding.subject, finding.pools, finding.tenants) == ("node/n1", ("chat",), ("acme",))
    assert finding.confidence_permille >= 900
    assert "XID 79" in str(finding.summary)
    cordon = finding.levers[0]
    assert (cordon.edits[0].noun, cordon.edits[0].changes) == ("nodes", {"cordoned": True})


@pytest.mark.parametrize(
    "fleet",
    [
        # It is contained.
        of(FELL, cordoned=True),
        # Its incident is over, or the GPU answers again since.
        of({**FELL, "incident_state": "resolved"}),
        of(FELL, helpers.event("gpu_recovered", GPU, severity="info", detail="", at=iso(helpers.AT))),
        # An application's, once; and one that means nothing.
        of(xid(13, "restart_app", "warning")),
        of(xid(43, "none", "info"), xid(43, "none", "info")),
        of({**FELL, "node": "n2"}),
    ],
)
def test_what_is_contained_over_or_harmless_is_not(fleet: Fleet):
    assert not found(fleet)


def test_an_application_whose_xids_repeat_is_found_and_no_node_cordoned_for_it():
    (finding,) = found(of(xid(13, "restart_app", "warning"), xid(13, "restart_app", "warning")))
    assert list(keyed(finding)) == ["restart_engines"]


@pytest.mark.parametrize(("event", "allowed", "key", "how"), [
    (ECC, ("reset_gpu",), "drain_and_reset", f"by the act reset_gpu with gpu {GPU}"),
    (ECC, (), "drain_and_reset", "nvidia-smi --gpu-reset -i 0"),
    (FELL, ("reboot",), "drain_and_reboot", "by the act reboot"),
    (FELL, ("reset_gpu",), "drain_and_reboot", "by hand"),
])  # fmt: skip
def test_the_node_is_emptied_and_then_reset_or_rebooted_as_the_xid_asks(
    event: Any, allowed: tuple[str, ...], key: str, how: str
):
    fleet = of(event, allowed=allowed)
    (finding,) = found(fleet)
    mend = finding.levers[1]
    assert mend.key == key
    assert mend.edits[0].changes == {"cordoned": True}
    # An act on the node would not wait for these.
    assert mend.commands == (
        Command("engine/e1", "drain"), Command("engine/e1", "stop"), Command("engine/e2", "drain"),
        Command("engine/e2", "stop"),
    )  # fmt: skip
    assert how in str(mend.advice)
    kit.check([finding], fleet)


def test_the_only_engine_of_a_pool_is_not_ended():
    (finding,) = found(of(FELL, engines=("e1",)))
    assert not finding.levers[1].commands


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"uncorrected": 0.02}, "ECC"),
        ({"recovery": 1}, "the driver asks for a recovery"),
        ({"hot": 1}, "hot"),
        ({"braked": 1}, "power brake"),
        ({"lanes": 8}, "PCIe lanes lost"),
    ],
)
def test_what_is_measured_of_a_gpu_is_found(given: Any, what: str):
    (finding,) = found(**given)
    assert what in str(finding.summary)


def test_a_lost_gpu_is_found_by_its_state():
    fleet = of()
    fleet = helpers.fleet(nodes=fleet.nodes.values(), gpus=[helpers.gpu(uuid=GPU, state="lost")])
    assert found(fleet)


def test_heat_is_met_by_less_power_and_no_cordon():
    (finding,) = found(hot=1)
    assert list(keyed(finding)) == ["cool"]
    # 85 % of 700 W.
    assert "-pl 595" in str(finding.levers[0].advice)


def test_slices_count_where_their_pool_is_slower_than_it_promises():
    assert not found(mig=7)
    (finding,) = found(mig=7, tpot=0.2)
    assert list(keyed(finding)) == ["no_mig"]


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    kit.dry_run(found(of(FELL))[0])


@given(hot=st.floats(0, 1), more=st.floats(0, 1))
def test_more_heat_never_clears_it(hot: float, more: float):
    def judged(hot: float) -> list[Finding]:
        return list(DETECTOR.judge(helpers.readings(DETECTOR, hot=[(WHICH, hot)]), of()))

    if judged(hot):
        assert judged(hot + more)


@given(st.data())
def test_a_node_that_is_cordoned_is_never_found(data: st.DataObject):
    fleet = data.draw(wider.fleets())
    assert not fleet.nodes["n1"]["cordoned"] or not found(fleet)
