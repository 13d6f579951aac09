"""The settings of the metric store, of what gateways tell of single requests, and of recorded series."""

from __future__ import annotations

from wire.settings import Setting, base_url, whole_number

PROMETHEUS_URL = Setting(
    "HEADWORKS_PROMETHEUS_URL",
    "",
    "Base address of a server that speaks Prometheus' HTTP API (…/api/v1/query is asked there); "
    "empty: the embedded store answers.",
    base_url,
)
REMOTE_WRITE_URL = Setting(
    "HEADWORKS_REMOTE_WRITE_URL",
    "",
    "Full address to which checked samples are passed on by remote write; empty: the embedded store keeps them.",
    base_url,
)
METRICS_UPSTREAM_SECONDS = Setting(
    "HEADWORKS_METRICS_UPSTREAM_SECONDS",
    10,
    "How long the external metrics server may take for an answer; then a query fails, and a write is sent again.",
    whole_number(1, 300),
)
METRICS_SPOOL_BYTES = Setting(
    "HEADWORKS_METRICS_SPOOL_BYTES",
    1 << 30,
    "Disk for bodies that wait for the external metrics server; beyond it writers are told to wait (429). 0: nothing "
    "waits here, a write is answered once the server has it.",
    whole_number(0, 1 << 44),
)
METRICS_BODY_MAX_BYTES = Setting(
    "HEADWORKS_METRICS_BODY_MAX_BYTES",
    16 << 20,
    "Largest remote-write body, unpacked: some 80,000 samples, ten times what senders put into one; refused (413).",
    whole_number(1024, 1 << 30),
)
METRICS_LABELS_MAX = Setting(
    "HEADWORKS_METRICS_LABELS_MAX",
    40,
    "Labels that one series may have; a GPU's have about ten.",
    whole_number(2, 1000),
)
METRICS_LABEL_VALUE_MAX_CHARACTERS = Setting(
    "HEADWORKS_METRICS_LABEL_VALUE_MAX_CHARACTERS",
    1024,
    "Length of a label's value; longer ones are no names but text that somebody sent.",
    whole_number(16, 65_536),
)
METRICS_SERIES_PER_TARGET_MAX = Setting(
    "HEADWORKS_METRICS_SERIES_PER_TARGET_MAX",
    50_000,
    "Series that one node, gateway or metric writer may have: in the embedded store, or active with an external "
    "server; a node of eight GPUs has about 1,000.",
    whole_number(1, 10_000_000),
)
METRICS_LATE_SECONDS = Setting(
    "HEADWORKS_METRICS_LATE_SECONDS",
    300,
    "A sample may come this much after a newer one of its series: two bodies can overtake each other.",
    whole_number(0, 86_400),
)
METRICS_FUTURE_SECONDS = Setting(
    "HEADWORKS_METRICS_FUTURE_SECONDS",
    600,
    "A sample may be this much ahead of this clock, as with Prometheus; beyond it the writer's clock is wrong.",
    whole_number(0, 86_400),
)
METRICS_KEEP_DAYS = Setting(
    "HEADWORKS_METRICS_KEEP_DAYS", 15, "Samples older than this are removed, as Prometheus does.", whole_number(1, 3650)
)
METRICS_MAX_BYTES = Setting(
    "HEADWORKS_METRICS_MAX_BYTES",
    8 << 30,
    "Size of the embedded store beyond which its oldest samples are removed, however young.",
    whole_number(16 << 20, 1 << 44),
)
METRICS_PACK_SECONDS = Setting(
    "HEADWORKS_METRICS_PACK_SECONDS",
    300,
    "Samples are packed into compressed chunks at this age: more at once pack better, fewer unpacked ones read faster.",
    whole_number(1, 86_400),
)
METRICS_PACK_SAMPLES = Setting(
    "HEADWORKS_METRICS_PACK_SAMPLES",
    500_000,
    "So many unpacked samples are packed at once, whatever their age: a web process holds them in memory.",
    whole_number(1000, 100_000_000),
)
METRICS_QUERY_SAMPLES_MAX = Setting(
    "HEADWORKS_METRICS_QUERY_SAMPLES_MAX",
    20_000_000,
    "Samples that one query may touch: 400 GPUs for a week at 15 s. It bounds a query's memory to some 1.2 GB, and a "
    "process evaluates one query that touches more than a million at a time.",
    whole_number(1000, 1_000_000_000),
)
METRICS_QUERY_SECONDS = Setting(
    "HEADWORKS_METRICS_QUERY_SECONDS",
    30,
    "How long one query may take; then it is refused (503).",
    whole_number(1, 600),
)
METRICS_QUERIES_AT_ONCE = Setting(
    "HEADWORKS_METRICS_QUERIES_AT_ONCE",
    4,
    "Queries of the HTTP API's callers that one process evaluates at the same time, and as many again of its own pages "
    "and rules; others wait for as long as a query may take.",
    whole_number(1, 64),
)
DECISIONS_KEEP_HOURS = Setting(
    "HEADWORKS_DECISIONS_KEEP_HOURS",
    24,
    "Decisions of gateways older than this are forgotten.",
    whole_number(1, 24 * 365),
)
DECISIONS_ROWS_MAX = Setting(
    "HEADWORKS_DECISIONS_ROWS_MAX",
    5_000_000,
    "Decisions beyond this number are forgotten, the oldest first, however young: some 2 GB of the database.",
    whole_number(1000, 1_000_000_000),
)
SKETCHES_KEEP_DAYS = Setting(
    "HEADWORKS_SKETCHES_KEEP_DAYS",
    30,
    "Per-minute sketches of requests' lengths older than this are forgotten.",
    whole_number(1, 3650),
)
SKETCHES_ROWS_MAX = Setting(
    "HEADWORKS_SKETCHES_ROWS_MAX",
    10_000_000,
    "Sketches beyond this number are forgotten, the oldest first: 230 rows a minute (one a gateway, tenant, class and "
    "pool) for 30 days.",
    whole_number(1000, 1_000_000_000),
)
OWN_SERIES_INTERVAL_SECONDS = Setting(
    "HEADWORKS_OWN_SERIES_INTERVAL_SECONDS",
    15,
    "How often the control plane writes its own series into the metric store, for its rules about itself.",
    whole_number(5, 60),
)
RECORDING_INTERVAL_SECONDS = Setting(
    "HEADWORKS_RECORDING_INTERVAL_SECONDS",
    60,
    "How often a group of recording rules is evaluated that names no interval of its own; 1,440 points a day.",
    whole_number(10, 3600),
)
RECORDING_DELAY_SECONDS = Setting(
    "HEADWORKS_RECORDING_DELAY_SECONDS",
    15,
    "Recording rules are evaluated this much after the moment that they are about, when its samples have been pushed.",
    whole_number(0, 300),
)
RECORDING_SERIES_MAX = Setting(
    "HEADWORKS_RECORDING_SERIES_MAX",
    2000,
    "Series that one recording rule's result may have. Beyond, the rule shows an error and records none.",
    whole_number(1, 100_000),
)

SETTINGS: tuple[Setting[object], ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Setting))
