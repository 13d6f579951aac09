"""The gateway's settings (rows HEADWORKS_GATEWAY_*)."""

from __future__ import annotations

from pathlib import Path

from gateway.redis_link import redis_url
from policy.asks import MESSAGE_OVERHEAD_TOKENS as MESSAGE_OVERHEAD_TOKENS_DEFAULT
from wire.settings import Setting, base_url, number, path, whole_number, yes_or_no

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
TLS_CERT: Setting[Path | None] = Setting(
    "HEADWORKS_GATEWAY_TLS_CERT",
    None,
    "File with the certificate chain in PEM, leaf first: the gateway then speaks HTTPS alone, HTTP/2 and HTTP/1.1. "
    "None: plain HTTP, for loopback or behind a proxy with TLS.",
    path,
)
TLS_KEY: Setting[Path | None] = Setting(
    "HEADWORKS_GATEWAY_TLS_KEY",
    None,
    "File with the certificate's key in PEM, without a password, readable by the gateway's user alone.",
    path,
)
TLS_CHECK_SECONDS = Setting(
    "HEADWORKS_GATEWAY_TLS_CHECK_SECONDS",
    10.0,
    "How often the two files are looked at; new connections get what they hold then. SIGHUP looks at once.",
    number(0.1, 86_400),
)
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
    "breaker is told. An engine that hangs keeps its streams open. Also how long its port may refuse connections "
    "before what it has not begun to answer is asked of another one. 0: never.",
    number(0, 86_400),
)
HEARTBEAT_SECONDS = Setting(
    "HEADWORKS_GATEWAY_HEARTBEAT_SECONDS",
    15.0,
    "A stream that has been quiet for this long, also before its first event, sends the comment `: waiting`: proxies "
    "close silent connections. With the first one the status 200 is sent, and a later refusal comes as an event, so "
    "keep it above the pools' queue_ttl_ms. 0: never.",
    number(0, 3600),
)
LEASE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_LEASE_SECONDS",
    60.0,
    "How long after the longest life of a request its quota reservation lapses by itself.",
    number(1, 86_400),
)
REDIS_URL = Setting(
    "HEADWORKS_GATEWAY_REDIS_URL",
    "",
    "redis://… or rediss://… of the Redis on which all gateways count limits together and tell each other of breakers. "
    "Empty: each gateway holds its share of every limit, all of it where it is the only one.",
    redis_url,
    secret=True,
    in_file=True,
)
REDIS_ANSWER_SECONDS = Setting(
    "HEADWORKS_GATEWAY_REDIS_ANSWER_SECONDS",
    0.05,
    "How long a request waits for an answer of the Redis. Then this gateway holds its share of the limits, without "
    "asking, until the Redis answers in time again.",
    number(0.001, 10),
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
    "Longest time to look up an engine's name and connect to it; engines stand in the same rack.",
    number(0.01, 60),
)
UPSTREAM_KEEP_ALIVE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_UPSTREAM_KEEP_ALIVE_SECONDS",
    4.0,
    "How long an idle connection to an engine is kept. Below vLLM's own 5 s, so that the gateway closes first.",
    number(0, 3600),
)
ENGINE_LOOK_SECONDS = Setting(
    "HEADWORKS_GATEWAY_ENGINE_LOOK_SECONDS",
    1.0,
    "How often each engine's metrics page is read for its KV cache and queue. A look costs about 0.5 ms of a core.",
    number(0.05, 60),
)
ENGINE_STALE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_ENGINE_STALE_SECONDS",
    5.0,
    "An engine whose page was not read for this long is stale, and its pool's stale_telemetry says what is admitted "
    "there. Also the longest time that one look may take: busy engines answer late.",
    number(0.1, 3600),
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
NOT_READY_WHEN_SATURATED = Setting(
    "HEADWORKS_GATEWAY_NOT_READY_WHEN_SATURATED",
    False,
    "Whether /readyz answers 503 while the queue of every pool is full, so that a load balancer tries other gateways. "
    "Where all are full it then has none to send to, and clients are not told when to come back.",
    yes_or_no,
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
OVERTAKINGS = Setting(
    "HEADWORKS_GATEWAY_OVERTAKINGS",
    16,
    "How many smaller requests may go past one that waits for more KV cache than is free; then, or after half of its "
    "time to wait, room is held for it. 0: none, and the room stands idle meanwhile.",
    whole_number(0, 1_000_000),
)
AFFINITY_SPREAD_PERMILLE = Setting(
    "HEADWORKS_GATEWAY_AFFINITY_SPREAD_PERMILLE",
    200,
    "A request goes to the engine that has read the beginning of its prompt before, as long as that is loaded by no "
    "more than this above the least loaded one, in thousandths of the KV cache that may be reserved there.",
    whole_number(0, 1000),
)
AFFINITY_BLOCKS = Setting(
    "HEADWORKS_GATEWAY_AFFINITY_BLOCKS",
    16_384,
    "Leading blocks of prompts (1,024 characters each) whose engine is remembered, of each pool; some 100 bytes a "
    "block. 0: none, so that load alone decides.",
    whole_number(0, 10_000_000),
)
CAPACITY_RETRY_SECONDS = Setting(
    "HEADWORKS_GATEWAY_CAPACITY_RETRY_SECONDS",
    1.0,
    "Retry-After where the time to free capacity is unknown (KV cache full, engines down).",
    number(1, 3600),
)
SESSIONS = Setting(
    "HEADWORKS_GATEWAY_SESSIONS",
    20_000,
    "Sessions (X-Session-Id) that are remembered at once, some 1 kB each; over it the tenant with the most of them "
    "loses the one that it used the longest ago.",
    whole_number(100, 1_000_000),
)
MESSAGE_OVERHEAD_TOKENS = Setting(
    "HEADWORKS_GATEWAY_MESSAGE_OVERHEAD_TOKENS",
    MESSAGE_OVERHEAD_TOKENS_DEFAULT,
    "Tokens that a chat template adds to each message, for models whose template was not uploaded.",
    whole_number(0, 1000),
)
TOKENIZE_OFF_LOOP_CHARACTERS = Setting(
    "HEADWORKS_GATEWAY_TOKENIZE_OFF_LOOP_CHARACTERS",
    4_096,
    "Prompts longer than this are measured in a thread: about 1 ms of work, the longest that may delay others.",
    whole_number(0, 2**30),
)
TOKEN_COUNT_CACHE = Setting(
    "HEADWORKS_GATEWAY_TOKEN_COUNT_CACHE",
    4_096,
    "Texts whose token count is remembered; system prompts repeat.",
    whole_number(0, 10_000_000),
)
ENGINE_TOKENIZE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_ENGINE_TOKENIZE_SECONDS",
    0.05,
    "How long a request waits for an engine to count its prompt, where the model has no tokenizer file; then the "
    "length is estimated. 0: engines are not asked.",
    number(0, 10),
)
ENGINE_TOKENIZE_PAUSE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_ENGINE_TOKENIZE_PAUSE_SECONDS",
    30.0,
    "How long an engine that did not count a prompt in time, or cannot, is not asked again.",
    number(0.01, 86_400),
)
REFUSE_IGNORED_FIELDS = Setting(
    "HEADWORKS_GATEWAY_REFUSE_IGNORED_FIELDS",
    True,
    "Refuse `guided_json` and its kin where engines of the pool are vLLM, which answers 200 without constraining. "
    "false: pass them on, for fleets of vLLM before 0.12.",
    yes_or_no,
)
KNOWN_SCHEMAS = Setting(
    "HEADWORKS_GATEWAY_KNOWN_SCHEMAS",
    64,
    "Schemas a pool, the most used ones, that an engine is asked for after it has started again. 0: none.",
    whole_number(0, 1_000),
)
SCHEMA_WARM_UP_SECONDS = Setting(
    "HEADWORKS_GATEWAY_SCHEMA_WARM_UP_SECONDS",
    60.0,
    "Longest time for an engine to compile the known schemas after a start. 0: engines are not warmed up.",
    number(0, 3600),
)
ARTIFACT_RETRY_SECONDS = Setting(
    "HEADWORKS_GATEWAY_ARTIFACT_RETRY_SECONDS",
    5.0,
    "Wait before a tokenizer or chat template that could not be fetched is asked for again.",
    number(0.01, 3600),
)
CACHE_BYTES = Setting(
    "HEADWORKS_GATEWAY_CACHE_BYTES",
    128 * 1024 * 1024,
    "Memory for the answers that cache policies let the gateway keep; over it those that nobody used for the longest "
    "go. An answer of 500 tokens is some 2 kB, as a stream 100 kB.",
    whole_number(1024 * 1024, 2**40),
)
CACHE_ANSWER_BYTES = Setting(
    "HEADWORKS_GATEWAY_CACHE_ANSWER_BYTES",
    1024 * 1024,
    "Larger answers are not kept: few are asked for twice, and each would push out many small ones.",
    whole_number(1024, 2**30),
)
CACHE_QUESTION_CHARACTERS = Setting(
    "HEADWORKS_GATEWAY_CACHE_QUESTION_CHARACTERS",
    2_000,
    "Longer texts are not compared by their meaning: they are documents, and longer than most embedding models read.",
    whole_number(1, 1_000_000),
)
CACHE_EMBEDDING_TIMEOUT_SECONDS = Setting(
    "HEADWORKS_GATEWAY_CACHE_EMBEDDING_TIMEOUT_SECONDS",
    0.1,
    "Longest wait for the embedding of a question, which every request that is then not answered pays as well. A small "
    "embedding model on a GPU takes some 10 ms.",
    number(0.001, 60),
)
CACHE_EMBEDDING_PAUSE_SECONDS = Setting(
    "HEADWORKS_GATEWAY_CACHE_EMBEDDING_PAUSE_SECONDS",
    5.0,
    "How long an engine that gave no embedding in time is not asked for another.",
    number(0, 3600),
)
FEEDBACK_REQUESTS = Setting(
    "HEADWORKS_GATEWAY_FEEDBACK_REQUESTS",
    50_000,
    "Answered requests that feedback can still name, some 300 bytes each; the oldest go. At 100 requests a second they "
    "are those of eight minutes.",
    whole_number(1, 10_000_000),
)
FEEDBACK_PER_MINUTE = Setting(
    "HEADWORKS_GATEWAY_FEEDBACK_PER_MINUTE",
    600,
    "Calls of /v1/feedback that one tenant may make a minute at one gateway, also all at once. Each may be asked of "
    "all other gateways, and is an event at the control plane.",
    whole_number(1, 1_000_000),
)
BATCH_CLASS = Setting(
    "HEADWORKS_GATEWAY_BATCH_CLASS",
    "batch",
    "Priority class in which the lines of batches run. It must exist, and a rank behind all others suits it; without "
    "it batches are refused (`no_batch_class`).",
    str,
)
BATCH_HEADROOM_PERMILLE = Setting(
    "HEADWORKS_GATEWAY_BATCH_HEADROOM_PERMILLE",
    150,
    "Share of a pool's KV cache, of the sequences that its engines run at once, and of its own concurrency limit, that "
    "lines of batches leave to interactive requests, which come in waves.",
    whole_number(0, 900),
)
BATCH_TTFT_PERCENT = Setting(
    "HEADWORKS_GATEWAY_BATCH_TTFT_PERCENT",
    110,
    "Lines of batches become fewer where the time to first token of interactive requests (p95) is above so much of "
    "what it was without lines, or above what their pool promises.",
    whole_number(101, 10_000),
)
BATCH_LINES_MAX = Setting(
    "HEADWORKS_GATEWAY_BATCH_LINES_MAX",
    1_024,
    "Lines of batches that this gateway holds at once, those that wait here included. 0: it runs none.",
    whole_number(0, 100_000),
)
BATCH_POLL_SECONDS = Setting(
    "HEADWORKS_GATEWAY_BATCH_POLL_SECONDS",
    1.0,
    "How often the control plane is asked for lines where it had none.",
    number(0.05, 3600),
)

SETTINGS = (
    CONTROL_URL,
    JOIN_TOKEN,
    JOIN_TOKEN_FILE,
    NAME,
    STATE_DIR,
    HOST,
    PORT,
    TLS_CERT,
    TLS_KEY,
    TLS_CHECK_SECONDS,
    MAX_CONNECTIONS,
    LISTEN_BACKLOG,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MAX_ANSWER_BYTES,
    BODY_TIMEOUT_SECONDS,
    MAX_REQUEST_SECONDS,
    STREAM_SILENCE_SECONDS,
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    REDIS_URL,
    REDIS_ANSWER_SECONDS,
    BUDGET_KEEP_SECONDS,
    CONNECT_TIMEOUT_SECONDS,
    UPSTREAM_KEEP_ALIVE_SECONDS,
    ENGINE_LOOK_SECONDS,
    ENGINE_STALE_SECONDS,
    DRAIN_SECONDS,
    LAST_SEND_SECONDS,
    STALLED_CLIENT_SECONDS,
    NOT_READY_WHEN_SATURATED,
    METRICS_TOKEN,
    PUSH_INTERVAL_SECONDS,
    SPOOL_BYTES,
    DECISIONS_WAITING,
    SKETCHES_WAITING,
    RETRY_BUDGET_PERMILLE,
    RETRY_BURST,
    OVERTAKINGS,
    AFFINITY_SPREAD_PERMILLE,
    AFFINITY_BLOCKS,
    CAPACITY_RETRY_SECONDS,
    SESSIONS,
    MESSAGE_OVERHEAD_TOKENS,
    TOKENIZE_OFF_LOOP_CHARACTERS,
    TOKEN_COUNT_CACHE,
    ENGINE_TOKENIZE_SECONDS,
    ENGINE_TOKENIZE_PAUSE_SECONDS,
    REFUSE_IGNORED_FIELDS,
    KNOWN_SCHEMAS,
    SCHEMA_WARM_UP_SECONDS,
    ARTIFACT_RETRY_SECONDS,
    CACHE_BYTES,
    CACHE_ANSWER_BYTES,
    CACHE_QUESTION_CHARACTERS,
    CACHE_EMBEDDING_TIMEOUT_SECONDS,
    CACHE_EMBEDDING_PAUSE_SECONDS,
    FEEDBACK_REQUESTS,
    FEEDBACK_PER_MINUTE,
    BATCH_CLASS,
    BATCH_HEADROOM_PERMILLE,
    BATCH_TTFT_PERCENT,
    BATCH_LINES_MAX,
    BATCH_POLL_SECONDS,
)
