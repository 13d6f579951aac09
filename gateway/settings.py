"""The gateway's settings (rows HEADWORKS_GATEWAY_*)."""

from __future__ import annotations

from pathlib import Path

from policy.asks import MESSAGE_OVERHEAD_TOKENS as MESSAGE_OVERHEAD_TOKENS_DEFAULT
from wire.settings import Setting, base_url, number, path, whole_number

CONTROL_URL = Setting(
    "HEADWORKS_GATEWAY_CONTROL_URL", "http://127.0.0.1:8600", "Where the control plane answers.", base_url
)
JOIN_TOKEN = Setting(
    "HEADWORKS_GATEWAY_JOIN_TOKEN",
    "",
    "The single-use join token, needed at the first start, and again when the token of this target is no longer taken.",
    str,
    secret=True,
)
JOIN_TOKEN_FILE = Setting(
    "HEADWORKS_GATEWAY_JOIN_TOKEN_FILE",
    Path("join-token"),
    "File with the join token, read where none is given otherwise; a file keeps it out of the process list.",
    path,
)
NAME = Setting("HEADWORKS_GATEWAY_NAME", "", "Name of this gateway among the targets. Empty: the host's name.", str)
STATE_DIR = Setting(
    "HEADWORKS_GATEWAY_STATE_DIR",
    Path("gateway-state"),
    "Credentials, last-known-good configuration and tokenizer files, readable by the gateway's user alone.",
    path,
)
HOST = Setting("HEADWORKS_GATEWAY_HOST", "127.0.0.1", "Address to listen on. Loopback until a person opens it.", str)
PORT = Setting("HEADWORKS_GATEWAY_PORT", 8400, "Port to listen on.", whole_number(1, 65_535))
MAX_CONNECTIONS = Setting(
    "HEADWORKS_GATEWAY_MAX_CONNECTIONS",
    8_192,
    "Client connections at once, idle ones included; further ones wait. Each stream also holds one to its engine.",
    whole_number(16, 1_000_000),
)
LISTEN_BACKLOG = Setting(
    "HEADWORKS_GATEWAY_LISTEN_BACKLOG",
    1_024,
    "Connections that the kernel holds until they are accepted; a burst of clients must fit.",
    whole_number(1, 65_535),
)
MAX_BODY_BYTES = Setting(
    "HEADWORKS_GATEWAY_MAX_BODY_BYTES",
    8 * 1024 * 1024,
    "Largest request body. 8 MiB holds about two million tokens of text, more than a context.",
    whole_number(1024, 2**30),
)
MAX_HEADER_BYTES = Setting(
    "HEADWORKS_GATEWAY_MAX_HEADER_BYTES",
    16 * 1024,
    "Largest sum of the request's header names and values.",
    whole_number(1024, 256 * 1024),
)
MAX_ANSWER_BYTES = Setting(
    "HEADWORKS_GATEWAY_MAX_ANSWER_BYTES",
    64 * 1024 * 1024,
    "Largest answer of an engine that is not a stream; it is held in memory until its usage is read.",
    whole_number(1024, 2**30),
)
BODY_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_GATEWAY_BODY_TIMEOUT_SECONDS",
    30.0,
    "Longest time for a client to send its body, so that slow senders do not hold places.",
    number(0.1, 3600),
)
MAX_REQUEST_SECONDS = Setting(
    "HEADWORKS_GATEWAY_MAX_REQUEST_SECONDS",
    600.0,
    "Longest life of one request, queue and generation included. max_tokens bounds tokens; this bounds time.",
    number(1, 86_400),
)
STREAM_SILENCE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_STREAM_SILENCE_SECONDS",
    60.0,
    "Longest silence of an engine within a stream, after its first bytes; then the stream ends in engine_error and the "
    "breaker is told. An engine that hangs keeps its streams open. 0: never.",
    number(0, 86_400),
)
LEASE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_LEASE_SECONDS",
    60.0,
    "How long after the longest life of a request its quota reservation lapses by itself.",
    number(1, 86_400),
)
BUDGET_KEEP_SECONDS = Setting(
    "HEADWORKS_GATEWAY_BUDGET_KEEP_SECONDS",
    1.0,
    "How often what was used of daily token budgets is written to the state directory, if it changed. A gateway that "
    "is killed forgets what was used since.",
    number(0.1, 3600),
)
CONNECT_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_GATEWAY_CONNECT_TIMEOUT_SECONDS",
    2.0,
    "Longest time to connect to an engine; engines stand in the same rack.",
    number(0.01, 60),
)
UPSTREAM_KEEP_ALIVE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_UPSTREAM_KEEP_ALIVE_SECONDS",
    4.0,
    "How long an idle connection to an engine is kept. Below vLLM's own 5 s, so that the gateway closes first.",
    number(0, 3600),
)
DRAIN_SECONDS = Setting(
    "HEADWORKS_GATEWAY_DRAIN_SECONDS",
    120.0,
    "After SIGTERM, how long running streams may go on before they are cut.",
    number(0, 86_400),
)
LAST_SEND_SECONDS = Setting(
    "HEADWORKS_GATEWAY_LAST_SEND_SECONDS",
    5.0,
    "How long a client may take to read the error that ends its stream. One that reads nothing is given up after it.",
    number(0.01, 600),
)
STALLED_CLIENT_SECONDS = Setting(
    "HEADWORKS_GATEWAY_STALLED_CLIENT_SECONDS",
    60.0,
    "A client that takes nothing of what is sent to it for this long loses its connection; one that died or never "
    "reads would otherwise keep its place among the connections for ever.",
    number(0.1, 86_400),
)
METRICS_TOKEN = Setting(
    "HEADWORKS_GATEWAY_METRICS_TOKEN",
    "",
    "Bearer token that /metrics asks for. Empty: open to whoever reaches the port, and the page names tenants and "
    "engines; set it where clients can reach it.",
    str,
    secret=True,
    in_file=True,
)
PUSH_INTERVAL_SECONDS = Setting(
    "HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS",
    5.0,
    "How often the gateway pushes what it measures to the control plane; rules look every 15 s. "
    "Well below HEADWORKS_TARGET_SILENT_SECONDS: a gateway whose pushes stay away that long is shown as lost.",
    number(0.1, 60),
)
SPOOL_BYTES = Setting(
    "HEADWORKS_GATEWAY_SPOOL_BYTES",
    64 * 1024 * 1024,
    "Disk for samples that wait for the control plane; over it the oldest go. 2,000 series every 5 s for an hour are "
    "some 40 MB.",
    whole_number(2**20, 2**40),
)
DECISIONS_WAITING = Setting(
    "HEADWORKS_GATEWAY_DECISIONS_WAITING",
    10_000,
    "Decisions that wait in memory for the control plane, some 1 kB each; over it the oldest samples of admitted "
    "requests go, then the oldest refusals.",
    whole_number(100, 1_000_000),
)
SKETCHES_WAITING = Setting(
    "HEADWORKS_GATEWAY_SKETCHES_WAITING",
    5_000,
    "Rows of per-minute sketches (one a tenant, class and pool) that wait in memory for the control plane; over it the "
    "oldest go. 80 rows a minute for an hour fit.",
    whole_number(100, 1_000_000),
)
RETRY_BUDGET_PERMILLE = Setting(
    "HEADWORKS_GATEWAY_RETRY_BUDGET_PERMILLE",
    100,
    "Retries on another engine as a share of requests; the usual 10 % keeps a failing fleet from being hit harder.",
    whole_number(0, 1000),
)
RETRY_BURST = Setting(
    "HEADWORKS_GATEWAY_RETRY_BURST",
    10,
    "Retries that may be saved up by quiet traffic.",
    whole_number(0, 100_000),
)
CAPACITY_RETRY_SECONDS = Setting(
    "HEADWORKS_GATEWAY_CAPACITY_RETRY_SECONDS",
    1.0,
    "Retry-After where the time to free capacity is unknown (KV cache full, engines down).",
    number(1, 3600),
)
MESSAGE_OVERHEAD_TOKENS = Setting(
    "HEADWORKS_GATEWAY_MESSAGE_OVERHEAD_TOKENS",
    MESSAGE_OVERHEAD_TOKENS_DEFAULT,
    "Tokens that a chat template adds to each message; real usage replaces the measure when a request settles.",
    whole_number(0, 1000),
)
TOKENIZE_OFF_LOOP_CHARACTERS = Setting(
    "HEADWORKS_GATEWAY_TOKENIZE_OFF_LOOP_CHARACTERS",
    8_192,
    "Prompts longer than this are measured in a thread: about 1 ms of work, the longest that may delay others.",
    whole_number(0, 2**30),
)
TOKEN_COUNT_CACHE = Setting(
    "HEADWORKS_GATEWAY_TOKEN_COUNT_CACHE",
    4_096,
    "Texts whose token count is remembered; system prompts repeat.",
    whole_number(0, 10_000_000),
)
ARTIFACT_RETRY_SECONDS = Setting(
    "HEADWORKS_GATEWAY_ARTIFACT_RETRY_SECONDS",
    5.0,
    "Wait before a tokenizer file that could not be fetched is asked for again.",
    number(0.01, 3600),
)

SETTINGS = (
    CONTROL_URL,
    JOIN_TOKEN,
    JOIN_TOKEN_FILE,
    NAME,
    STATE_DIR,
    HOST,
    PORT,
    MAX_CONNECTIONS,
    LISTEN_BACKLOG,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MAX_ANSWER_BYTES,
    BODY_TIMEOUT_SECONDS,
    MAX_REQUEST_SECONDS,
    STREAM_SILENCE_SECONDS,
    LEASE_SECONDS,
    BUDGET_KEEP_SECONDS,
    CONNECT_TIMEOUT_SECONDS,
    UPSTREAM_KEEP_ALIVE_SECONDS,
    DRAIN_SECONDS,
    LAST_SEND_SECONDS,
    STALLED_CLIENT_SECONDS,
    METRICS_TOKEN,
    PUSH_INTERVAL_SECONDS,
    SPOOL_BYTES,
    DECISIONS_WAITING,
    SKETCHES_WAITING,
    RETRY_BUDGET_PERMILLE,
    RETRY_BURST,
    CAPACITY_RETRY_SECONDS,
    MESSAGE_OVERHEAD_TOKENS,
    TOKENIZE_OFF_LOOP_CHARACTERS,
    TOKEN_COUNT_CACHE,
    ARTIFACT_RETRY_SECONDS,
)
