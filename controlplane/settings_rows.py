"""The control plane's settings: name, default, reason. Read once, by `controlplane.settings`."""

from __future__ import annotations

from pathlib import Path

from wire.settings import Setting, comma_separated, one_of, path, whole_number, yes_or_no

DATA_DIR = Setting(
    "HEADWORKS_DATA_DIR",
    Path(".headworks"),
    "Where the embedded profile keeps its database, generated keys and log files.",
    path,
)
DATABASE_URL = Setting(
    "HEADWORKS_DATABASE_URL",
    "",
    "postgres://… for the production profile; empty means SQLite in the data directory, which needs no server.",
    str,
    secret=True,
)
REDIS_URL = Setting(
    "HEADWORKS_REDIS_URL",
    "",
    "redis://… wakes the other web processes at once and carries Celery's tasks; "
    "empty means one machine, where polling and a broker of files do.",
    str,
    secret=True,
)
SECRET_KEY = Setting(
    "HEADWORKS_SECRET_KEY",
    "",
    "Signs sessions. Empty: made once and kept in the data directory with mode 0600. "
    "Several web processes must share one.",
    str,
    secret=True,
)
FIELD_KEY = Setting(
    "HEADWORKS_FIELD_KEY",
    "",
    "Fernet key that encrypts engines' API keys at rest. Empty: made once and kept in the data directory, mode 0600.",
    str,
    secret=True,
)
HOST = Setting(
    "HEADWORKS_HOST", "127.0.0.1", "Address the web process listens on; loopback until someone decides otherwise.", str
)
PORT = Setting("HEADWORKS_PORT", 8600, "Port of the web process.", whole_number(1, 65_535))
MAX_CONNECTIONS = Setting(
    "HEADWORKS_MAX_CONNECTIONS",
    16_384,
    "Connections that the web process holds at once; every config stream and every open page is one.",
    whole_number(16, 1_000_000),
)
ALLOWED_HOSTS: Setting[tuple[str, ...]] = Setting(
    "HEADWORKS_ALLOWED_HOSTS",
    ("localhost", "127.0.0.1", "[::1]"),
    "Host names under which the control plane may be called, separated by commas; others are refused (400).",
    comma_separated,
)
TRUSTED_ORIGINS: Setting[tuple[str, ...]] = Setting(
    "HEADWORKS_TRUSTED_ORIGINS",
    (),
    "Origins (https://host) from which forms are accepted when a proxy in front changes scheme or host.",
    comma_separated,
)
HTTPS = Setting(
    "HEADWORKS_HTTPS",
    False,
    "True where a TLS proxy is in front: cookies are then marked secure. "
    "Off by default, since the embedded profile serves plain loopback.",
    yes_or_no,
)
LANGUAGE = Setting(
    "HEADWORKS_LANGUAGE", "en", "Language of pages until the browser asks for another that exists.", one_of("en", "tr")
)
SESSION_HOURS = Setting("HEADWORKS_SESSION_HOURS", 12, "A log-in lasts one shift.", whole_number(1, 24 * 30))
LOGIN_FAILURES_MAX = Setting(
    "HEADWORKS_LOGIN_FAILURES_MAX",
    5,
    "Wrong passwords that one name may give from one address before it must wait: a person needs three or four tries, "
    "a list of common passwords thousands.",
    whole_number(1, 1000),
)
LOGIN_WINDOW_MINUTES = Setting(
    "HEADWORKS_LOGIN_WINDOW_MINUTES",
    15,
    "How long a wrong password counts, and so how long one waits.",
    whole_number(1, 1440),
)
BODY_MAX_BYTES = Setting(
    "HEADWORKS_BODY_MAX_BYTES",
    1 << 20,
    "Largest request body other than an artifact; larger ones are refused (413).",
    whole_number(1024, 1 << 30),
)
ARTIFACT_MAX_BYTES = Setting(
    "HEADWORKS_ARTIFACT_MAX_BYTES",
    64 << 20,
    "Largest tokenizer file; the largest public ones are about 35 MB.",
    whole_number(1024, 1 << 30),
)
PUBLISH_QUIET_MS = Setting(
    "HEADWORKS_PUBLISH_QUIET_MS",
    100,
    "A burst of writes becomes one revision once none has come for this long.",
    whole_number(0, 10_000),
)
PUBLISH_MAX_WAIT_MS = Setting(
    "HEADWORKS_PUBLISH_MAX_WAIT_MS",
    1000,
    "A burst that does not end is published after this long.",
    whole_number(0, 60_000),
)
POLL_MS = Setting(
    "HEADWORKS_POLL_MS",
    200,
    "How often a web process looks for revisions and writes of other processes.",
    whole_number(10, 10_000),
)
STREAM_PING_SECONDS = Setting(
    "HEADWORKS_STREAM_PING_SECONDS",
    10,
    "A config stream with nothing to say shows that it lives; targets reconnect after three misses.",
    whole_number(1, 60),
)
ACK_BATCH_MS = Setting(
    "HEADWORKS_ACK_BATCH_MS",
    20,
    "Acknowledgements that come within this time are stored in one transaction.",
    whole_number(0, 1000),
)
REVISIONS_KEEP = Setting(
    "HEADWORKS_REVISIONS_KEEP",
    2000,
    "Revisions kept at least, however old.",
    whole_number(10, 1_000_000),
)
REVISIONS_KEEP_DAYS = Setting(
    "HEADWORKS_REVISIONS_KEEP_DAYS",
    90,
    "Revisions younger than this are kept, however many.",
    whole_number(1, 3650),
)
JOIN_TOKEN_MINUTES = Setting(
    "HEADWORKS_JOIN_TOKEN_MINUTES", 60, "A join token that is not used expires.", whole_number(1, 7 * 24 * 60)
)
TARGET_TOKEN_DAYS = Setting(
    "HEADWORKS_TARGET_TOKEN_DAYS",
    90,
    "Life of a gateway's or agent's token; it asks for a new one at half of it.",
    whole_number(1, 3650),
)
TARGET_SILENT_SECONDS = Setting(
    "HEADWORKS_TARGET_SILENT_SECONDS",
    45,
    "A target unheard of for this long is shown as lost: three missed node reports, or four missed pings.",
    whole_number(5, 3600),
)

SETTINGS: tuple[Setting[object], ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Setting))
