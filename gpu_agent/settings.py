"""The agent's settings (rows HEADWORKS_AGENT_*)."""

from __future__ import annotations

import re
from pathlib import Path

from wire.settings import Setting, base_url, comma_separated, number, one_of, path, whole_number

_MAX_FOLDERS = 32


def gpu_source(text: str) -> str:
    """`nvml`, `none`, or `simulated:` with the path of a state file."""
    kind, _, where = text.partition(":")
    if text in ("nvml", "none") or (kind == "simulated" and where):
        return text
    raise ValueError("give nvml, none, or simulated:PATH of a state file")


def listen_address(text: str) -> tuple[str, int]:
    """`host:port`, with an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or any(letter in host for letter in "[]/@ ") or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ValueError("give host:port, such as 127.0.0.1:9401 or [::1]:9401")
    return host, int(port)


def folders(text: str) -> tuple[str, ...]:
    found = comma_separated(text)
    if len(found) > _MAX_FOLDERS or not all(folder.startswith("/") and len(folder) <= 1000 for folder in found):
        raise ValueError(f"give at most {_MAX_FOLDERS} absolute paths, with commas between them")
    return found


def engine_series(text: str) -> tuple[str, ...]:
    """Names of metrics, a trailing * for all that begin so; `none` for none of them."""
    names = () if text == "none" else comma_separated(text)
    if text != "none" and not (
        names and all(re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,190}\*?", name) for name in names)
    ):
        raise ValueError("give names of metrics separated by commas, a trailing * for all that begin so, or none")
    return names


def spot_notice(text: str) -> str:
    """A cloud, or `file:` with the absolute path of a file."""
    if text in ("", "aws", "gcp", "azure") or text.startswith("file:/"):
        return text
    raise ValueError("give aws, gcp, azure, or file:/PATH of a file that is made when the machine will be taken away")


def ports(text: str) -> tuple[int, ...]:
    try:
        found = tuple(sorted({int(part) for part in comma_separated(text)}))
    except ValueError:
        found = ()
    if not 1 <= len(found) <= 64 or found[0] < 1 or found[-1] > 65_535:
        raise ValueError("give at most 64 ports from 1 to 65535, separated by commas")
    return found


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
CANARY_SECONDS = Setting(
    "HEADWORKS_AGENT_CANARY_SECONDS",
    0.0,
    "Time between two canaries of an engine: completions of one token, which see a core that hangs while nothing runs. "
    "0: none.",
    number(0, 86_400),
)
CONFORMANCE_SECONDS = Setting(
    "HEADWORKS_AGENT_CONFORMANCE_SECONDS",
    0.0,
    "Time between two tries of whether an engine obeys response_format; 3600 is often enough. 0: none.",
    number(0, 30 * 86_400),
)
CANARY_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_AGENT_CANARY_TIMEOUT_SECONDS",
    30.0,
    "How long a canary or a try of response_format waits for its answer. Longer than requests wait in a busy engine's "
    "queue, or being busy counts as a failure.",
    number(0.1, 600),
)
PAGE_LIMIT_BYTES = Setting(
    "HEADWORKS_AGENT_PAGE_LIMIT_BYTES",
    4 * 2**20,
    "Longest engine page that is read. vLLM's metrics are about 50 KiB.",
    whole_number(1024, 2**30),
)
ENGINE_SERIES: Setting[tuple[str, ...] | None] = Setting(
    "HEADWORKS_AGENT_ENGINE_SERIES",
    None,
    "Names of the engines' own metrics that are passed on under these names beside the canonical ones, separated by "
    "commas; a trailing * takes all that begin so, none takes none. At most 500 series an engine. Empty: those in "
    "docs/engines.md.",
    engine_series,
)
ENGINE_PORTS: Setting[tuple[int, ...]] = Setting(
    "HEADWORKS_AGENT_ENGINE_PORTS",
    (),
    "Ports of 127.0.0.1 where engines may be that no configuration names, separated by commas. Each is tried once a "
    "minute; an engine that answers is shown with its node.",
    ports,
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
GPU_PROCESSES_INTERVAL_SECONDS = Setting(
    "HEADWORKS_AGENT_GPU_PROCESSES_INTERVAL_SECONDS",
    60.0,
    "Time between two readings of which processes use a GPU. NVML's list takes milliseconds and holds the driver's "
    "lock meanwhile.",
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
    "Longest time between two tries to open NVML, and the time after which it is first opened afresh for a lost GPU, "
    "then more and more rarely: a driver shows a GPU that was reset to new clients only.",
    number(0.1, 3600),
)
DCGM_EXPORTER_URL = Setting(
    "HEADWORKS_AGENT_DCGM_EXPORTER_URL",
    "",
    "Metrics page of a dcgm-exporter on this node, such as http://127.0.0.1:9400/metrics, for the profiling metrics of "
    "GPUs before Hopper, which NVML does not give. Empty: none.",
    base_url,
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
RELEASE_LIMIT_SECONDS = Setting(
    "HEADWORKS_AGENT_RELEASE_LIMIT_SECONDS",
    600.0,
    "How long `headworks-agent release-gpu` keeps NVML closed at most where it is not told otherwise. A reset of all "
    "GPUs of a node takes a minute.",
    number(1, 3600),
)
RELEASE_WAIT_SECONDS = Setting(
    "HEADWORKS_AGENT_RELEASE_WAIT_SECONDS",
    15.0,
    "How long the agent may take to let go of NVML before `release-gpu` gives up; it takes a second, unless a process "
    "hangs in the driver.",
    number(1, 600),
)
ACT_SECONDS = Setting(
    "HEADWORKS_AGENT_ACT_SECONDS",
    300.0,
    "How long an act may take that states no limit of its own: sleep, pause, an adapter, a model of Triton's. Loading "
    "100 GB of weights takes minutes.",
    number(1, 3600),
)
SPOT_NOTICE = Setting(
    "HEADWORKS_AGENT_SPOT_NOTICE",
    "",
    "Where it is said that this machine will be taken away: aws, gcp or azure, whose metadata server is then asked "
    "every 2 seconds, or file:/PATH of a file that is made by then. The notice is an event, the node is ready no more, "
    "and its engines get no new requests. Empty: nobody is asked.",
    spot_notice,
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
HOST_INTERVAL_SECONDS = Setting(
    "HEADWORKS_AGENT_HOST_INTERVAL_SECONDS",
    15.0,
    "Time between two looks at the node around its GPUs: processes of engines, sockets, memory, disks.",
    number(0.1, 3600),
)
DISK_PATHS = Setting[tuple[str, ...]](
    "HEADWORKS_AGENT_DISK_PATHS",
    (),
    "Further folders whose disks are watched, with commas between them. The agent's state folder, with its spools, and "
    "the models' places of the node's policy always are.",
    folders,
)
LISTEN = Setting[tuple[str, int] | None](
    "HEADWORKS_AGENT_LISTEN",
    None,
    "host:port of the agent's own pages: metrics and readiness. Empty: it has none. They are not encrypted, so keep "
    "them on loopback or on a network of the cluster's own.",
    listen_address,
)
LISTEN_TOKEN = Setting(
    "HEADWORKS_AGENT_LISTEN_TOKEN",
    "",
    "The bearer token that a reader of the agent's own /metrics must show. Empty: none. Readiness asks for none.",
    str,
    secret=True,
    in_file=True,
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
    CANARY_SECONDS,
    CONFORMANCE_SECONDS,
    CANARY_TIMEOUT_SECONDS,
    PAGE_LIMIT_BYTES,
    ENGINE_SERIES,
    ENGINE_PORTS,
    GPU_SOURCE,
    NVML_LIBRARY,
    GPU_INTERVAL_SECONDS,
    GPU_SLOW_INTERVAL_SECONDS,
    GPU_PROCESSES_INTERVAL_SECONDS,
    GPU_ANSWER_SECONDS,
    NVML_OPEN_SECONDS,
    NVML_RETRY_SECONDS,
    DCGM_EXPORTER_URL,
    KMSG_PATH,
    KMSG_SCAN_SECONDS,
    XID_RULES_FILE,
    RELEASE_LIMIT_SECONDS,
    RELEASE_WAIT_SECONDS,
    POLICY_FILE,
    ACT_SECONDS,
    SPOT_NOTICE,
    HOSTNAME_LABEL,
    SPOOL_BYTES,
    EVENT_SPOOL_BYTES,
    HOST_INTERVAL_SECONDS,
    DISK_PATHS,
    LISTEN,
    LISTEN_TOKEN,
    LOG_LEVEL,
)
