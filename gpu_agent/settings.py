"""The agent's settings (rows HEADWORKS_AGENT_*)."""

from __future__ import annotations

from pathlib import Path

from wire.settings import Setting, number, one_of, path, whole_number

CONTROL_URL = Setting("HEADWORKS_AGENT_CONTROL_URL", "http://127.0.0.1:8600", "Where the control plane answers.", str)
JOIN_TOKEN = Setting(
    "HEADWORKS_AGENT_JOIN_TOKEN", "", "The single-use join token, needed at the first start only.", str, secret=True
)
JOIN_TOKEN_FILE = Setting(
    "HEADWORKS_AGENT_JOIN_TOKEN_FILE",
    Path("join-token"),
    "File with the join token, read where none is given otherwise; a file keeps it out of the process list.",
    path,
)
NAME = Setting("HEADWORKS_AGENT_NAME", "", "Name of this node among the targets. Empty: the host's name.", str)
STATE_DIR = Setting(
    "HEADWORKS_AGENT_STATE_DIR",
    Path("agent-state"),
    "Credentials and last-known-good configuration, readable by the agent's user alone.",
    path,
)
REPORT_INTERVAL_SECONDS = Setting(
    "HEADWORKS_AGENT_REPORT_INTERVAL_SECONDS",
    15.0,
    "Longest time between two reports; a change is reported at once. Three of them missed: the node counts as lost.",
    number(0.1, 3600),
)
PROBE_INTERVAL_SECONDS = Setting(
    "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS",
    5.0,
    "Time between two looks at the engines, and so the longest time until a dead one is noticed.",
    number(0.1, 3600),
)
PAGE_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_AGENT_PAGE_TIMEOUT_SECONDS",
    5.0,
    "How long an engine may take to answer one page before it counts as down.",
    number(0.1, 300),
)
PAGE_LIMIT_BYTES = Setting(
    "HEADWORKS_AGENT_PAGE_LIMIT_BYTES",
    4 * 2**20,
    "Longest engine page that is read. vLLM's metrics are about 50 KiB.",
    whole_number(1024, 2**30),
)
INVENTORY_INTERVAL_SECONDS = Setting(
    "HEADWORKS_AGENT_INVENTORY_INTERVAL_SECONDS",
    300.0,
    "Time between two readings of which GPUs there are; each opens NVML for a moment, which blocks a GPU reset.",
    number(0.1, 86_400),
)
INVENTORY_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_AGENT_INVENTORY_TIMEOUT_SECONDS",
    20.0,
    "How long NVML may take. With persistence mode off the driver loads first, which takes seconds a GPU.",
    number(0.1, 600),
)
LOG_LEVEL = Setting(
    "HEADWORKS_AGENT_LOG_LEVEL",
    "info",
    "Least severe messages that are logged. At info: one line a change of state.",
    one_of("debug", "info", "warning", "error"),
)

SETTINGS = (
    CONTROL_URL,
    JOIN_TOKEN,
    JOIN_TOKEN_FILE,
    NAME,
    STATE_DIR,
    REPORT_INTERVAL_SECONDS,
    PROBE_INTERVAL_SECONDS,
    PAGE_TIMEOUT_SECONDS,
    PAGE_LIMIT_BYTES,
    INVENTORY_INTERVAL_SECONDS,
    INVENTORY_TIMEOUT_SECONDS,
    LOG_LEVEL,
)
