"""The control plane's settings: name, default, reason. Read once, by `controlplane.settings`."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from cryptography.fernet import Fernet

from wire.settings import Setting, base_url, comma_separated, one_of, path, whole_number, yes_or_no

SECRET_KEY_MIN_CHARACTERS = 32


def long_secret(text: str) -> str:
    if len(text) < SECRET_KEY_MIN_CHARACTERS:
        raise ValueError(f"give {SECRET_KEY_MIN_CHARACTERS} random characters or more")
    return text


def fernet_key(text: str) -> str:
    try:
        Fernet(text)
    except ValueError:
        raise ValueError("give 32 random bytes in URL-safe base64: 44 characters, the last one =") from None
    return text


_DATABASE_FORM = "give postgres://user:password@host:port/name or, for SQLite, sqlite:////path"
_REDIS_FORM = "give redis://host:port/number or rediss://host:port/number"


def database_url(text: str) -> str:
    url = _url(text, ("postgres", "postgresql", "sqlite"), _DATABASE_FORM)
    if not url.path.strip("/"):
        raise ValueError(_DATABASE_FORM)
    return text


def redis_url(text: str) -> str:
    if not _url(text, ("redis", "rediss"), _REDIS_FORM).hostname:
        raise ValueError(_REDIS_FORM)
    return text


def _url(text: str, schemes: tuple[str, ...], form: str) -> SplitResult:
    try:
        url = urlsplit(text)
        # Read for its check.
        _ = url.port
    except ValueError:
        raise ValueError(form) from None
    if url.scheme not in schemes or not text.startswith(f"{url.scheme}://"):
        raise ValueError(form)
    return url


def listening_address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError("give an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::1") from None


def origins(text: str) -> tuple[str, ...]:
    parts = comma_separated(text)
    if not all(re.fullmatch(r"https?://[^\s/@?#]+", part) for part in parts):
        raise ValueError("give https://host or http://host[:port] without a path, separated by commas")
    return parts


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
    database_url,
    secret=True,
    in_file=True,
)
DATABASE_PASSWORD = Setting(
    "HEADWORKS_DATABASE_PASSWORD",
    "",
    "Password of the database's user where HEADWORKS_DATABASE_URL carries none: one file can then give it to "
    "PostgreSQL's container and to ours.",
    str,
    secret=True,
    in_file=True,
)
REDIS_URL = Setting(
    "HEADWORKS_REDIS_URL",
    "",
    "redis://… wakes the other web processes at once and carries Celery's tasks; "
    "empty means one machine, where polling and a broker of files do.",
    redis_url,
    secret=True,
    in_file=True,
)
SECRET_KEY = Setting(
    "HEADWORKS_SECRET_KEY",
    "",
    "Signs sessions. Empty: made once and kept in the data directory with mode 0600. "
    "Several web processes must share one.",
    long_secret,
    secret=True,
    in_file=True,
)
FIELD_KEY = Setting(
    "HEADWORKS_FIELD_KEY",
    "",
    "Fernet key that encrypts engines' API keys at rest. Empty: made once and kept in the data directory, mode 0600.",
    fernet_key,
    secret=True,
    in_file=True,
)
HOST = Setting(
    "HEADWORKS_HOST",
    "127.0.0.1",
    "Address the web process listens on; loopback until someone decides otherwise.",
    listening_address,
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
    "Host names under which the control plane may be called, separated by commas; others are refused (400), except at "
    "/healthz, /readyz and /metrics, which are called by address.",
    comma_separated,
)
TRUSTED_ORIGINS: Setting[tuple[str, ...]] = Setting(
    "HEADWORKS_TRUSTED_ORIGINS",
    (),
    "Origins (https://host) from which forms are accepted when a proxy in front changes scheme or host.",
    origins,
)
HTTPS = Setting(
    "HEADWORKS_HTTPS",
    False,
    "True where a TLS proxy is in front: cookies are then marked secure. "
    "Off by default, since the embedded profile serves plain loopback.",
    yes_or_no,
)


def mail_address(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*", text):
        raise ValueError("give an address such as oncall@example.com")
    return text


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(part) for part in comma_separated(text))
    except ValueError as error:
        raise ValueError(f"give addresses or networks such as 10.0.0.0/24, separated by commas ({error})") from None


TRUSTED_PROXIES: Setting[tuple[IPv4Network | IPv6Network, ...]] = Setting(
    "HEADWORKS_TRUSTED_PROXIES",
    (),
    "Addresses or networks of the proxies in front, separated by commas. What they say in X-Forwarded-For is believed: "
    "the bound on log-in failures and the audit then see the client instead of the proxy.",
    _networks,
)
LANGUAGE = Setting(
    "HEADWORKS_LANGUAGE", "en", "Language of pages until the browser asks for another that exists.", one_of("en", "tr")
)
SESSION_HOURS = Setting(
    "HEADWORKS_SESSION_HOURS", 12, "A log-in lasts one shift, however busy.", whole_number(1, 24 * 30)
)
SESSION_IDLE_MINUTES = Setting(
    "HEADWORKS_SESSION_IDLE_MINUTES",
    120,
    "A log-in ends when its person has opened no page for so long; what an open page asks for by itself does not "
    "count. 0: only HEADWORKS_SESSION_HOURS ends it, as a wall display wants.",
    whole_number(0, 30 * 24 * 60),
)
LOGIN_FAILURES_MAX = Setting(
    "HEADWORKS_LOGIN_FAILURES_MAX",
    5,
    "Wrong passwords that one name may give from one address before it must wait: a person needs three or four tries, "
    "a list of common passwords thousands.",
    whole_number(1, 1000),
)
LOGIN_ADDRESS_FAILURES_MAX = Setting(
    "HEADWORKS_LOGIN_ADDRESS_FAILURES_MAX",
    100,
    "Wrong passwords that one address may give with all names together: a few people behind one address reach a "
    "dozen, who tries one password with every name hundreds.",
    whole_number(1, 100_000),
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
STAGE_LOOK_SECONDS = Setting(
    "HEADWORKS_STAGE_LOOK_SECONDS",
    5,
    "How often the worker looks at a staged change: what its targets say, and what its query does.",
    whole_number(1, 3600),
)
CONFIG_REMOVALS_PERCENT = Setting(
    "HEADWORKS_CONFIG_REMOVALS_PERCENT",
    10,
    "A document of the configuration that would remove more of a section than this is applied only with "
    "`allow_removals`: it may be half a document.",
    whole_number(0, 100),
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
IDEMPOTENCY_KEEP_HOURS = Setting(
    "HEADWORKS_IDEMPOTENCY_KEEP_HOURS",
    24,
    "A write that comes again with its Idempotency-Key within this time is answered as the first time.",
    whole_number(1, 24 * 30),
)
IDEMPOTENCY_KEYS_MAX = Setting(
    "HEADWORKS_IDEMPOTENCY_KEYS_MAX",
    10_000,
    "Answers kept for one caller; beyond, the oldest are forgotten before their time.",
    whole_number(100, 1_000_000),
)
IDEMPOTENCY_BYTES_MAX = Setting(
    "HEADWORKS_IDEMPOTENCY_BYTES_MAX",
    268_435_456,
    "Space of the kept answers of all callers; beyond, the oldest are forgotten before their time.",
    whole_number(1_048_576, 1_099_511_627_776),
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
    "A target unheard of for this long is shown as lost: a node after three missed reports, a gateway after "
    "nine missed pushes (one that never pushes: four missed pings of its stream).",
    whole_number(5, 3600),
)
PULSE_FILE: Setting[Path | None] = Setting(
    "HEADWORKS_PULSE_FILE",
    None,
    "File whose time a worker or beat renews whenever the broker took something of it, for a container's health check: "
    "neither listens anywhere. Empty: none.",
    path,
)

PUBLIC_URL = Setting(
    "HEADWORKS_PUBLIC_URL",
    "",
    "Address under which people reach this control plane; webhooks link to it. Empty: they carry no link.",
    base_url,
)
WEBHOOK_ALLOWED_NETWORKS: Setting[tuple[IPv4Network | IPv6Network, ...]] = Setting(
    "HEADWORKS_WEBHOOK_ALLOWED_NETWORKS",
    (),
    "Private and loopback networks that webhooks may reach, separated by commas. Link-local addresses and those of "
    "clouds' metadata services stay refused.",
    _networks,
)
WEBHOOK_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_WEBHOOK_TIMEOUT_SECONDS",
    8,
    "How long one attempt may take in all. Less than the 10 s after which what runs a worker kills it when it stops.",
    whole_number(1, 60),
)
WEBHOOK_RETRY_MAX_SECONDS = Setting(
    "HEADWORKS_WEBHOOK_RETRY_MAX_SECONDS",
    300,
    "The longest pause between two attempts; they start within a second and double.",
    whole_number(1, 86_400),
)
WEBHOOK_GIVE_UP_SECONDS = Setting(
    "HEADWORKS_WEBHOOK_GIVE_UP_SECONDS",
    86_400,
    "A message that could not be delivered for so long has failed: it is shown as such and can be sent again.",
    whole_number(1, 30 * 86_400),
)
WEBHOOKS_AT_ONCE = Setting(
    "HEADWORKS_WEBHOOKS_AT_ONCE",
    16,
    "Receivers that one worker sends to at the same time, one message each; the others wait for their turn.",
    whole_number(1, 256),
)
MESSAGE_ALERTS_MAX = Setting(
    "HEADWORKS_MESSAGE_ALERTS_MAX",
    50,
    "Alerts of an incident that one message shows, those that fire first; it says how many more there are.",
    whole_number(1, 1000),
)
RECEIVER_FAILURES_MAX = Setting(
    "HEADWORKS_RECEIVER_FAILURES_MAX",
    5,
    "Attempts at a receiver that fail one after the other until it is left alone for a while, and an incident tells "
    "the others so.",
    whole_number(1, 1000),
)
SMTP_HOST = Setting(
    "HEADWORKS_SMTP_HOST",
    "",
    "The mail server that receivers of kind email are written to through. Empty: there are none.",
    str,
)
SMTP_PORT = Setting("HEADWORKS_SMTP_PORT", 587, "Port of the mail server.", whole_number(1, 65_535))
SMTP_SECURITY = Setting(
    "HEADWORKS_SMTP_SECURITY",
    "starttls",
    "How the mail server is spoken to: starttls, tls (from the first byte on, mostly port 465) or none.",
    one_of("starttls", "tls", "none"),
)
SMTP_USER = Setting("HEADWORKS_SMTP_USER", "", "Who logs in to the mail server. Empty: nobody does.", str)
SMTP_PASSWORD = Setting(
    "HEADWORKS_SMTP_PASSWORD", "", "The password of HEADWORKS_SMTP_USER.", str, secret=True, in_file=True
)
SMTP_FROM = Setting(
    "HEADWORKS_SMTP_FROM", "", "The address that mails come from, such as headworks@example.com.", mail_address
)
RULE_INTERVAL_SECONDS = Setting(
    "HEADWORKS_RULE_INTERVAL_SECONDS", 15, "How often each rule is evaluated.", whole_number(1, 3600)
)
RULE_SERIES_MAX = Setting(
    "HEADWORKS_RULE_SERIES_MAX",
    5000,
    "Series that one rule's result may have: each is an alert. Beyond, the rule shows an error and opens none.",
    whole_number(1, 10_000),
)
RULE_PACK = Setting(
    "HEADWORKS_RULE_PACK",
    True,
    "Whether `headworks up` and `headworks migrate` bring the alerting rules of this version: those that a person "
    "changed stay as they are, and those that a person deleted do not come again.",
    yes_or_no,
)
EVENTS_KEEP_DAYS = Setting(
    "HEADWORKS_EVENTS_KEEP_DAYS",
    30,
    "Events of nodes older than this are forgotten, but those of an incident that still fires; an event whose node's "
    "clock says that it is older still counts from its arrival.",
    whole_number(1, 3650),
)
INCIDENTS_KEEP_DAYS = Setting(
    "HEADWORKS_INCIDENTS_KEEP_DAYS",
    365,
    "Incidents that ended so long ago are forgotten, with their time lines and deliveries.",
    whole_number(1, 3650),
)
SILENCES_KEEP_DAYS = Setting(
    "HEADWORKS_SILENCES_KEEP_DAYS",
    30,
    "Silences that ended are kept for so long: people see what was kept quiet, and why.",
    whole_number(1, 3650),
)
INCIDENTS_QUIET_SECONDS = Setting(
    "HEADWORKS_INCIDENTS_QUIET_SECONDS",
    3600,
    "A warning that nothing tells the end of, such as an XID that a restarted application cures, ends when it has not "
    "come again for so long.",
    whole_number(60, 30 * 86_400),
)

ACT_UNTOLD_SECONDS = Setting(
    "HEADWORKS_ACT_UNTOLD_SECONDS",
    7800,
    "An act whose agent tells no end of it counts as expired so long after it may last be begun: longer than an hour, "
    "which is the limit of most, and another for a restart that is taken back. One of a longer limit has more time.",
    whole_number(60, 30 * 86_400),
)
ACTS_KEEP_DAYS = Setting(
    "HEADWORKS_ACTS_KEEP_DAYS",
    90,
    "Acts that ended so long ago are forgotten; the audit keeps who asked for them.",
    whole_number(1, 3650),
)
WHAT_IFS_KEEP_DAYS = Setting(
    "HEADWORKS_WHAT_IFS_KEEP_DAYS",
    90,
    "What-if runs that ended so long ago are forgotten, with their reports.",
    whole_number(1, 3650),
)
VERSION_IDLE_DAYS = Setting(
    "HEADWORKS_VERSION_IDLE_DAYS",
    14,
    "A version of a model that is not the newest, and that nobody asked for in so many days, is retired: its engines "
    "are drained, and stopped or put to sleep where their nodes allow. 0: never by itself.",
    whole_number(0, 3650),
)
DIAGNOSIS_INTERVAL_SECONDS = Setting(
    "HEADWORKS_DIAGNOSIS_INTERVAL_SECONDS",
    15,
    "How often all detectors look at the fleet.",
    whole_number(1, 3600),
)
DIAGNOSIS_WINDOW_SECONDS = Setting(
    "HEADWORKS_DIAGNOSIS_WINDOW_SECONDS",
    120,
    "How far back a detector looks; shorter, it sees sooner and is misled by single slow requests.",
    whole_number(10, 3600),
)
DIAGNOSIS_QUERY_SECONDS = Setting(
    "HEADWORKS_DIAGNOSIS_QUERY_SECONDS",
    10,
    "How long the metrics may take for all questions of one look; detectors that were not answered by then are blind.",
    whole_number(1, 600),
)
DIAGNOSIS_FINDINGS_MAX = Setting(
    "HEADWORKS_DIAGNOSIS_FINDINGS_MAX",
    50,
    "Places at which one detector may find something; beyond, the most confident are kept.",
    whole_number(1, 1000),
)
DIAGNOSIS_VERIFY_WINDOWS = Setting(
    "HEADWORKS_DIAGNOSIS_VERIFY_WINDOWS",
    4,
    "A lever has this many windows (HEADWORKS_DIAGNOSIS_WINDOW_SECONDS) to end its finding once all run it; after them "
    "it is offered back. In the first of them the detector still looks at what was before.",
    whole_number(2, 100),
)
DIAGNOSIS_ALERT_CONFIDENCE_PERMILLE = Setting(
    "HEADWORKS_DIAGNOSIS_ALERT_CONFIDENCE_PERMILLE",
    0,
    "A finding of this confidence or more opens an alert, as a rule does. 0: none does, people look at the page.",
    whole_number(0, 1000),
)
SCALE_INTERVAL_SECONDS = Setting(
    "HEADWORKS_SCALE_INTERVAL_SECONDS",
    15,
    "How often it is measured how many engines each pool should have.",
    whole_number(1, 3600),
)
SCALE_DOWN_SECONDS = Setting(
    "HEADWORKS_SCALE_DOWN_SECONDS",
    600,
    "A pool should have as many engines as it wanted at most within so long: up at once, down slowly.",
    whole_number(0, 86_400),
)
FINDINGS_KEEP_DAYS = Setting(
    "HEADWORKS_FINDINGS_KEEP_DAYS",
    30,
    "Findings that were over so long ago are forgotten, with the levers that they offered.",
    whole_number(1, 3650),
)
LITELLM_AT_ROOT = Setting(
    "HEADWORKS_LITELLM_AT_ROOT",
    False,
    "Answer LiteLLM-shaped calls at /key/… and /team/… too, for scripts that cannot be given /api/litellm as base URL.",
    yes_or_no,
)

SETTINGS: tuple[Setting[object], ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Setting))


def sqlite_file() -> Path | None:
    """Where the embedded profile's database lies; None with PostgreSQL."""
    url = DATABASE_URL.read()
    if not url:
        return DATA_DIR.read().absolute() / "headworks.sqlite3"
    return Path(unquote(urlsplit(url).path[1:])).absolute() if url.startswith("sqlite:") else None
