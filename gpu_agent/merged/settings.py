"""The settings of the merged page (rows HEADWORKS_MERGED_*)."""

from __future__ import annotations

from pathlib import Path

from gpu_agent.settings import listen_address
from wire.settings import Setting, base_url, number, path, whole_number

MULTIPROC_DIR = Setting(
    "HEADWORKS_MERGED_MULTIPROC_DIR",
    Path("/run/vllm-metrics"),
    "The folder that PROMETHEUS_MULTIPROC_DIR names for vLLM. On a local disk, and wiped before each start of Triton.",
    path,
)
TRITON_URL = Setting(
    "HEADWORKS_MERGED_TRITON_URL", "http://127.0.0.1:8002/metrics", "Triton's own metrics page.", base_url
)
LISTEN = Setting(
    "HEADWORKS_MERGED_LISTEN", ("127.0.0.1", 8003), "Where the merged page is served, as host:port.", listen_address
)
TIMEOUT_SECONDS = Setting(
    "HEADWORKS_MERGED_TIMEOUT_SECONDS",
    2.0,
    "How long Triton's page and the reading of vLLM's folder may take; after it the merged page has the other's part.",
    number(0.05, 60),
)
PAGE_LIMIT_BYTES = Setting(
    "HEADWORKS_MERGED_PAGE_LIMIT_BYTES",
    16 * 2**20,
    "Longest page of Triton's, and most bytes of vLLM's files, that are read.",
    whole_number(2**16, 2**30),
)
FILES_LIMIT = Setting(
    "HEADWORKS_MERGED_FILES_LIMIT",
    2_000,
    "Most files of the folder that are read. More are those of processes that are gone: wipe it between starts.",
    whole_number(1, 100_000),
)

SETTINGS = (MULTIPROC_DIR, TRITON_URL, LISTEN, TIMEOUT_SECONDS, PAGE_LIMIT_BYTES, FILES_LIMIT)
