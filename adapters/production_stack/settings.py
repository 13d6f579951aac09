"""Settings of the adapter for production-stack's router (rows HEADWORKS_ROUTER_CONFIG_*)."""

from __future__ import annotations

from pathlib import Path

from wire.settings import Setting, base_url, one_of, path, yes_or_no

# Those of the router's that need nothing but what its dynamic configuration can say.
ROUTING_LOGICS = ("roundrobin", "session", "prefixaware")

CONTROL_URL = Setting(
    "HEADWORKS_ROUTER_CONFIG_CONTROL_URL", "http://127.0.0.1:8600", "Where the control plane answers.", base_url
)
JOIN_TOKEN = Setting(
    "HEADWORKS_ROUTER_CONFIG_JOIN_TOKEN",
    "",
    "The single-use join token of a gateway, needed at the first start, and again when the token of this target is no "
    "longer taken.",
    str,
    secret=True,
)
JOIN_TOKEN_FILE = Setting(
    "HEADWORKS_ROUTER_CONFIG_JOIN_TOKEN_FILE",
    Path("join-token"),
    "File with the join token, read where none is given otherwise; a file keeps it out of the process list.",
    path,
)
NAME = Setting("HEADWORKS_ROUTER_CONFIG_NAME", "", "Name of the router among the targets. Empty: the host's name.", str)
STATE_DIR = Setting(
    "HEADWORKS_ROUTER_CONFIG_STATE_DIR",
    Path("router-config-state"),
    "Credentials and last-known-good configuration, readable by this process's user alone.",
    path,
)
FILE = Setting(
    "HEADWORKS_ROUTER_CONFIG_FILE",
    Path("router-config.json"),
    "The file that the router watches (its --dynamic-config-json). Its folder must be writable for this process.",
    path,
)
ROUTING_LOGIC = Setting(
    "HEADWORKS_ROUTER_CONFIG_ROUTING_LOGIC",
    "roundrobin",
    f"How the router chooses among the backends of a model: {', '.join(ROUTING_LOGICS)}.",
    one_of(*ROUTING_LOGICS),
)
SESSION_KEY = Setting(
    "HEADWORKS_ROUTER_CONFIG_SESSION_KEY",
    "x-session-id",
    "Request header by which the routing logic `session` knows a session.",
    str,
)
HEALTH_CHECKS = Setting(
    "HEADWORKS_ROUTER_CONFIG_HEALTH_CHECKS",
    False,
    "Whether the router asks each backend for a few tokens now and then, and leaves out those that do not answer.",
    yes_or_no,
)

SETTINGS = (
    CONTROL_URL,
    JOIN_TOKEN,
    JOIN_TOKEN_FILE,
    NAME,
    STATE_DIR,
    FILE,
    ROUTING_LOGIC,
    SESSION_KEY,
    HEALTH_CHECKS,
)
