"""The GPUs' own charts: memory, heat, power, clocks, errors and links."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from dashboards import units
from dashboards.charts.promql import gauge, highest, mean, mean_gauge, ranged, rate, selector
from dashboards.charts.rows import Chart, Fold, Query, Section

_NODE = ("node",)
# Those of NVML's that take speed away from work; idleness and settings do not. hw_slowdown is the last two together.
_SLOWING = 'reason=~"sw_power_cap|sw_thermal_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"'
_USED, _TOTAL = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL"
_XIDS, _RECORDED_XIDS = "headworks_gpu_xid_errors_total", "node:headworks_gpu_xid_errors:sum"
NO_GPUS = _("Agents read it from GPUs. Does an agent run on a node with GPUs, and does it see them?")

COMPUTE = Chart(
    "compute",
    _("GPU compute"),
    _("Utilisation per node, mean of its GPUs."),
    units.PERCENT,
    _NODE,
    (Query(mean_gauge("avg", "DCGM_FI_DEV_GPU_UTIL", "node"), mean("node:DCGM_FI_DEV_GPU_UTIL:avg")),),
    _NODE,
    NO_GPUS,
    highest=100,
)
GPUS = Section(
    _("GPUs"),
    (
        Chart(
            "vram",
            _("GPU memory"),
            _("Per node, used part of its GPUs' memory. Engines take theirs at the start and keep it."),
            units.PERCENT,
            _NODE,
            (
                Query(
                    f"100 * {gauge('sum', _USED, 'node')} / {gauge('sum', _TOTAL, 'node')}",
                    f"100 * {mean(f'node:{_USED}:sum')} / {mean(f'node:{_TOTAL}:sum')}",
                ),
            ),
            _NODE,
            NO_GPUS,
            highest=100,
        ),
        Chart(
            "temperature",
            _("GPU temperature"),
            _("Per node its hottest GPU; hover for each."),
            units.CELSIUS,
            _NODE,
            (Query(gauge("max", "DCGM_FI_DEV_GPU_TEMP", "node, gpu"), highest("node:DCGM_FI_DEV_GPU_TEMP:max")),),
            _NODE,
            NO_GPUS,
            fold=Fold("gpu", max),
            recorded_note=_("Per node its hottest GPU, each point the highest."),
            lowest=20,
            highest=90,
        ),
        Chart(
            "power",
            _("GPU power"),
            _("Per node, sum of its GPUs."),
            units.WATTS,
            _NODE,
            (Query(mean_gauge("sum", "DCGM_FI_DEV_POWER_USAGE", "node"), mean("node:DCGM_FI_DEV_POWER_USAGE:sum")),),
            _NODE,
            NO_GPUS,
        ),
        Chart(
            "clocks",
            _("GPU clocks"),
            _("Per node, mean SM clock of its GPUs. Busy and slower than its neighbours: look at what holds it down."),
            units.MEGAHERTZ,
            _NODE,
            (Query(mean_gauge("avg", "DCGM_FI_DEV_SM_CLOCK", "node"), mean("node:DCGM_FI_DEV_SM_CLOCK:avg")),),
            _NODE,
            NO_GPUS,
        ),
        Chart(
            "throttling",
            _("GPUs held down"),
            _("By the driver's reason: how many GPUs ran slower for it. A power cap alone is common under full load."),
            units.GPUS,
            ("reason",),
            (Query(mean_gauge("sum", "headworks_gpu_clock_event_active", "reason", _SLOWING)),),
            _NODE,
            NO_GPUS,
        ),
    ),
)
FAULTS = Section(
    _("Errors and links"),
    (
        Chart(
            "xids",
            _("XIDs"),
            _("Per node: errors that the driver told of around each point. The node's page names each."),
            units.ERRORS,
            _NODE,
            (
                Query(
                    f"sum by (node) (increase({ranged(_XIDS)}))",
                    f"increase({ranged(_RECORDED_XIDS)})",
                ),
            ),
            _NODE,
            NO_GPUS,
        ),
        Chart(
            "ecc",
            _("ECC errors"),
            _("Per node since the driver was loaded: uncorrected drawn through, corrected dotted. A step is an error."),
            units.ERRORS,
            _NODE,
            # Read every few minutes: the newest of the store's look-back.
            (
                Query(f"sum by (node) ({selector('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')})", "", _("uncorrected")),
                Query(f"sum by (node) ({selector('DCGM_FI_DEV_ECC_SBE_VOL_TOTAL')})", "", _("corrected"), "dotted"),
            ),
            _NODE,
            _("GPUs without ECC memory have none, and those whose ECC is off."),
        ),
        Chart(
            "pcie",
            _("PCIe traffic"),
            _("Per node, all GPUs: sent drawn through, received dotted."),
            units.BYTES_PER_SECOND,
            _NODE,
            (
                Query(mean_gauge("sum", "DCGM_FI_PROF_PCIE_TX_BYTES", "node"), "", _("sent")),
                Query(mean_gauge("sum", "DCGM_FI_PROF_PCIE_RX_BYTES", "node"), "", _("received"), "dotted"),
            ),
            _NODE,
            _("GPUs from Hopper on tell of it; for others a dcgm-exporter on the node does."),
        ),
        Chart(
            "nvlink",
            _("NVLink traffic"),
            _("Per node, all GPUs: sent drawn through, received dotted."),
            units.BYTES_PER_SECOND,
            _NODE,
            (
                Query(rate("headworks_gpu_nvlink_bytes_total", "node", 'direction="tx"'), "", _("sent")),
                Query(rate("headworks_gpu_nvlink_bytes_total", "node", 'direction="rx"'), "", _("received"), "dotted"),
            ),
            _NODE,
            _("GPUs without NVLink have none."),
        ),
    ),
)
