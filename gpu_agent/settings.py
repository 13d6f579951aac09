"""The agent's settings (rows HEADWORKS_AGENT_*)."""

from __future__ import annotations

from pathlib import Path

from wire.settings import Setting, base_url, number, one_of, path, whole_number


def gpu_source(text: str) -> str:
    """`nvml`, `none`, or `simulated:` with the path of a state file."""
    kind, _, where = text.partition(":")
    if text in ("nvml", "none") or (kind == "simulated" and where):
        return text
    raise ValueError("give nvml, none, or simulated:PATH of a state file")


CONTROL_URL = Setting(
    "HEADWORKS_AGENT_CONTROL_URL", "http://127.0.0.1:8600", "Where the control plane answers.", base_url
)
JOIN_TOKEN = Setting(
    "HEADWORKS_AGENT_JOIN_TOKEN",
    "",
    "The single-use join token, needed at the first start, and again when the token of this target is no longer taken.",
    str,
    secret=True,
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
    "Credentials, last-known-good configuration and what waits to be sent, readable by the agent's user alone.",
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
    "Time between two looks at the engines, and so the longest time until a dead one is noticed. Each look's samples "
    "are pushed as it ends.",
    number(0.1, 3600),
)
PAGE_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_AGENT_PAGE_TIMEOUT_SECONDS",
    5.0,
    "How long a look at one engine may take, all its pages together. One that does not answer by then is down.",
    number(0.1, 300),
)
ENGINE_HUNG_SECONDS = Setting(
    "HEADWORKS_AGENT_ENGINE_HUNG_SECONDS",
    60.0,
    "How long requests may run in an engine while its counts of tokens and iterations and its use of KV cache stand "
    "still; then it is hung. Longer than the longest single step of a prefill, and than several looks.",
    number(0.1, 86_400),
)
PAGE_LIMIT_BYTES = Setting(
    "HEADWORKS_AGENT_PAGE_LIMIT_BYTES",
    4 * 2**20,
    "Longest engine page that is read. vLLM's metrics are about 50 KiB.",
    whole_number(1024, 2**30),
)
GPU_SOURCE = Setting(
    "HEADWORKS_AGENT_GPU_SOURCE",
    "nvml",
    "Where GPUs are read: nvml, none, or simulated:PATH, a state file of simulated GPUs for a demo without a compiler.",
    gpu_source,
)
NVML_LIBRARY = Setting(
    "HEADWORKS_AGENT_NVML_LIBRARY",
    "",
    "Path of libnvidia-ml.so.1 where the loader does not find it, as in a container. Empty: the one it finds.",
    str,
)
GPU_INTERVAL_SECONDS = Setting(
    "HEADWORKS_AGENT_GPU_INTERVAL_SECONDS",
    5.0,
    "Time between two readings of utilisation, memory, power and the like. Three of them without an answer: the GPU "
    "is unresponsive.",
    number(0.05, 3600),
)
GPU_SLOW_INTERVAL_SECONDS = Setting(
    "HEADWORKS_AGENT_GPU_SLOW_INTERVAL_SECONDS",
    60.0,
    "Time between two readings of what changes rarely: ECC counters, row remaps, limits, MIG mode.",
    number(0.05, 86_400),
)
GPU_ANSWER_SECONDS = Setting(
    "HEADWORKS_AGENT_GPU_ANSWER_SECONDS",
    0.05,
    "How long a reading waits for a slow GPU, and so how long one may delay the others. An H200 answers in 5 ms. A "
    "later answer is shown with the next reading; a sample of it may be lost.",
    number(0.01, 60),
)
NVML_OPEN_SECONDS = Setting(
    "HEADWORKS_AGENT_NVML_OPEN_SECONDS",
    30.0,
    "How long NVML may take to open. With persistence mode off the driver loads first, which takes seconds a GPU.",
    number(0.1, 600),
)
NVML_RETRY_SECONDS = Setting(
    "HEADWORKS_AGENT_NVML_RETRY_SECONDS",
    30.0,
    "Longest time between two tries to open NVML, and the time after which it is opened afresh for a lost GPU: a "
    "driver shows a GPU that was reset to new clients only.",
    number(0.1, 3600),
)
KMSG_PATH = Setting(
    "HEADWORKS_AGENT_KMSG_PATH",
    Path("/dev/kmsg"),
    "The kernel log, in which XIDs stand that NVML does not deliver.",
    path,
)
KMSG_SCAN_SECONDS = Setting(
    "HEADWORKS_AGENT_KMSG_SCAN_SECONDS",
    3600.0,
    "How old an XID of the kernel log may be that is reported when the agent starts; older ones have been dealt with.",
    number(0, 30 * 86_400),
)
XID_RULES_FILE = Setting(
    "HEADWORKS_AGENT_XID_RULES_FILE",
    "",
    "JSON file with this site's own classes and actions of XIDs, over the built-in table. Empty: none.",
    str,
)
POLICY_FILE = Setting(
    "HEADWORKS_AGENT_POLICY_FILE",
    "",
    "JSON file that says what may be done to this node and its engines, and what only it knows of them. Empty: nothing "
    "may be done.",
    str,
)
HOSTNAME_LABEL = Setting(
    "HEADWORKS_AGENT_HOSTNAME_LABEL",
    "Hostname",
    "Label with the host's name on GPU metrics: dcgm-exporter wrote Hostname, and writes hostname of late.",
    one_of("Hostname", "hostname"),
)
SPOOL_BYTES = Setting(
    "HEADWORKS_AGENT_SPOOL_BYTES",
    256 * 2**20,
    "Disk for samples that wait for a control plane that is away; then the oldest go. A node of eight GPUs and eight "
    "engines fills about 15 MiB an hour.",
    whole_number(2**20, 2**40),
)
EVENT_SPOOL_BYTES = Setting(
    "HEADWORKS_AGENT_EVENT_SPOOL_BYTES",
    16 * 2**20,
    "Disk for events that wait, kept apart from the samples. An event takes less than 1 KiB.",
    whole_number(2**20, 2**40),
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
    ENGINE_HUNG_SECONDS,
    PAGE_LIMIT_BYTES,
    GPU_SOURCE,
    NVML_LIBRARY,
    GPU_INTERVAL_SECONDS,
    GPU_SLOW_INTERVAL_SECONDS,
    GPU_ANSWER_SECONDS,
    NVML_OPEN_SECONDS,
    NVML_RETRY_SECONDS,
    KMSG_PATH,
    KMSG_SCAN_SECONDS,
    XID_RULES_FILE,
    POLICY_FILE,
    HOSTNAME_LABEL,
    SPOOL_BYTES,
    EVENT_SPOOL_BYTES,
    LOG_LEVEL,
)
