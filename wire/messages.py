"""Bodies and stream events between targets and the control plane (INTERFACES, "Endpoints between processes")."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from wire.problems import MAX_PROBLEMS as MAX_PROBLEMS
from wire.problems import Problem
from wire.snapshot import ActId, EngineKind, EpochMillis, Name, Positive, Sha256

TargetKind = Literal["gateway", "node"]
Token = Annotated[str, Meta(min_length=20, max_length=200)]
ShortText = Annotated[str, Meta(max_length=200)]
LongText = Annotated[str, Meta(max_length=2000)]
Revision = Annotated[int, Meta(ge=0, le=2**53 - 1)]
# What reading JSON from outside raises: not JSON or not of the type, not UTF-8, nested too deeply.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
MAX_ENGINES = 256
MAX_ACTS = 256
Whole = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class EnrolRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`POST targets/enrol`. `protocol` is `wire.PROTOCOL` of the sender."""

    join_token: Token
    kind: TargetKind
    name: Name
    version: Annotated[str, Meta(min_length=1, max_length=64)]
    protocol: Annotated[int, Meta(ge=0, le=10_000)]


class EnrolAnswer(Struct, frozen=True):
    """`token` is shown this once. Ask for a new one (`POST targets/rotate`) at half its life."""

    target_id: int
    token: Token
    expires_at_ms: EpochMillis


class SnapshotEvent(Struct, frozen=True):
    """The whole slice. `hash` is `content_hash(content)`."""

    revision: Revision
    hash: Sha256
    content: dict[str, Any]


class PatchEvent(Struct, frozen=True, rename={"from_revision": "from"}):
    """An RFC 7396 patch of the slice at `from`. `hash` is that of the patched slice."""

    from_revision: Revision
    revision: Revision
    hash: Sha256
    patch: dict[str, Any]


class PeersEvent(Struct, frozen=True):
    """How many gateways hold a stream now, the reader included; shares are limit ÷ this while Redis is away."""

    live_gateways: Positive


StreamEvent = SnapshotEvent | PatchEvent | PeersEvent
_event_types: dict[str, type[StreamEvent]] = {"snapshot": SnapshotEvent, "patch": PatchEvent, "peers": PeersEvent}


class Ack(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`POST config/ack`: {revision, hash, applied_at} or {revision, error}. `applied_at` is Unix time in ms."""

    revision: Revision
    hash: Sha256 | UnsetType = UNSET
    applied_at: EpochMillis | UnsetType = UNSET
    error: Annotated[list[Problem], Meta(min_length=1, max_length=MAX_PROBLEMS)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        applied = (self.hash is not UNSET, self.applied_at is not UNSET)
        if applied != ((True, True) if self.error is UNSET else (False, False)):
            raise ValueError("give either `hash` and `applied_at`, or `error`")


class GpuReport(Struct, frozen=True, omit_defaults=True):
    """One GPU of a node's inventory; a field that the driver does not support is absent.

    `state`: `unresponsive` owes an answer, `lost` is off the bus, `error` answers with errors alone.
    """

    uuid: ShortText
    index: Annotated[int, Meta(ge=0, le=1023)]
    model: ShortText
    memory_bytes: Whole | UnsetType = UNSET
    pci_bus_id: ShortText | UnsetType = UNSET
    simulated: bool = False
    state: Literal["ok", "unresponsive", "lost", "error"] = "ok"


Condition = Literal["ok", "hung", "paused", "sleeping", "dead", "unreachable"]


class EngineReport(Struct, frozen=True, omit_defaults=True):
    """What an agent saw of one engine. `state`: `up` answered its health check, `down` did not.

    `condition` of one that is up: `hung` has work and does none, `paused` and `sleeping` were told to do none. Of one
    that is down: `dead` refused the connection or said that it is ill, `unreachable` did not answer at all.
    `arguments`: what it was started with, without secrets. `start_phases_ms`: how long each phase of its start took.
    `probes`: what was tried on it, by name, and whether it held. `adapters`: LoRA adapters that it holds, and where
    they came from; `adapter_problems`: those that it shall hold and does not, and why. `leaving`: somebody on its node
    is about to end its process. `versions`: of what stands behind its own, such as Triton's `vllm`. `digests`: SHA-256
    of the tokenizer and chat template that it serves by. `max_length_tokens`: the longest sequence that it takes.
    """

    name: Name
    state: Literal["up", "down", "starting"]
    version: ShortText | UnsetType = UNSET
    kv_capacity_tokens: Whole | UnsetType = UNSET
    error: LongText | UnsetType = UNSET
    condition: Condition = "ok"
    started_at_ms: EpochMillis | UnsetType = UNSET
    arguments: Annotated[dict[ShortText, ShortText], Meta(max_length=200)] = {}
    start_phases_ms: Annotated[dict[ShortText, Whole], Meta(max_length=32)] = {}
    model_path: LongText | UnsetType = UNSET
    model_bytes: Whole | UnsetType = UNSET
    probes: Annotated[dict[ShortText, Literal["ok", "failed"]], Meta(max_length=16)] = {}
    adapters: Annotated[dict[ShortText, LongText], Meta(max_length=64)] = {}
    leaving: bool = False
    adapter_problems: Annotated[dict[ShortText, LongText], Meta(max_length=64)] = {}
    versions: Annotated[dict[ShortText, ShortText], Meta(max_length=16)] = {}
    digests: Annotated[dict[ShortText, Sha256], Meta(max_length=8)] = {}
    max_length_tokens: Whole | UnsetType = UNSET


class FoundEngine(Struct, frozen=True, omit_defaults=True):
    """An engine that answers on a port that the agent was told to try, and that no configuration names."""

    url: ShortText
    kind: EngineKind
    version: ShortText | UnsetType = UNSET
    models: Annotated[list[ShortText], Meta(max_length=32)] = []


class ModelFilesReport(Struct, frozen=True, omit_defaults=True):
    """Files of a model on a node's disk, beside the manifest that says what they should be.

    `whole`: every file is there, of its size and SHA-256. `present`: of its size, and not read. `partial`: some lack,
    or are shorter. `damaged`: `detail` names what differs.
    """

    manifest: Sha256
    folder: LongText
    state: Literal["absent", "partial", "present", "whole", "damaged"]
    present_bytes: Whole
    total_bytes: Whole
    at_ms: EpochMillis
    detail: LongText = ""


class ActReport(Struct, frozen=True, omit_defaults=True):
    """How far one act of the slice has come. `at_ms`: Unix time of this state; `took_ms`: from its beginning to there.

    `refused`: not begun, `reason` names why. `failed`: begun, and not done. `expired`: not begun in time. `detail`:
    what was done or went wrong, in words. `progress_permille`: of one that runs and can tell.
    """

    id: ActId
    state: Literal["running", "done", "refused", "failed", "expired"]
    at_ms: EpochMillis
    took_ms: Whole = 0
    reason: ShortText = ""
    detail: LongText = ""
    progress_permille: Annotated[int, Meta(ge=0, le=1000)] | UnsetType = UNSET


class NodeReport(Struct, frozen=True, omit_defaults=True):
    """`POST nodes/report`, every 15 s and on change. `simulated` labels a node whose hardware is not real.

    `gpu_problems` says in words what does not work in reading the GPUs, NVML as a whole included, `host_problems`
    what does not in looking at processes, connections and disks. `acts`: those of the slice that were begun or
    refused. `allowed_acts`: what the node's own policy lets be done, by engine; "" is the node itself. `cuda_version`:
    the newest that the driver can run. `revision`: that of the slice which all of this goes by, 0 before the first;
    whoever took an act back knows by it whether the agent had heard of that.
    """

    version: ShortText
    gpus: Annotated[list[GpuReport], Meta(max_length=64)] = []
    engines: Annotated[list[EngineReport], Meta(max_length=MAX_ENGINES)] = []
    driver_version: ShortText | UnsetType = UNSET
    gpu_source: Literal["nvml", "simulated", "none"] = "none"
    gpu_problems: Annotated[list[LongText], Meta(max_length=64)] = []
    host_problems: Annotated[list[LongText], Meta(max_length=64)] = []
    simulated: bool = False
    cordon_applied: bool = False
    found_engines: Annotated[list[FoundEngine], Meta(max_length=64)] = []
    acts: Annotated[list[ActReport], Meta(max_length=MAX_ACTS)] = []
    allowed_acts: Annotated[
        dict[ShortText, Annotated[list[ShortText], Meta(max_length=64)]], Meta(max_length=MAX_ENGINES + 1)
    ] = {}
    model_files: Annotated[list[ModelFilesReport], Meta(max_length=64)] = []
    cuda_version: ShortText | UnsetType = UNSET
    revision: Revision | UnsetType = UNSET


class Event(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that happened. `id` makes a resend count once; `at` is Unix time in ms.

    `node`: the agent's own. A gateway leaves it out: its token says whose event it is.
    """

    id: Annotated[str, Meta(min_length=8, max_length=100)]
    at: EpochMillis
    kind: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,63}$")]
    subject: ShortText
    severity: Literal["info", "warning", "critical"]
    detail: LongText
    node: Name | UnsetType = UNSET


# The reason of a decision that refuses nothing.
ADMITTED = "admitted"
_SnakeName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$(?!\n)")]
_Figure = Annotated[int, Meta(ge=-(2**53 - 1), le=2**53 - 1)]


class StageNote(Struct, frozen=True, omit_defaults=True):
    """What one stage of a request's way did: how long it took in microseconds, and the numbers that it weighed."""

    stage: _SnakeName
    took_us: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0
    numbers: Annotated[dict[_SnakeName, _Figure], Meta(max_length=32)] = {}


class Decision(Struct, frozen=True, omit_defaults=True, rename={"priority_class": "class"}):
    """Why a gateway admitted or refused one request, with the numbers it weighed.

    `at`: when the request came, Unix time in ms. `stage`: where its way ended. `reason`: `admitted`, or the named
    reason of a refusal, whose answer had `status`; `message` is what its client was told. `stages`: its way, in order.
    """

    request_id: Annotated[str, Meta(min_length=1, max_length=128)]
    at: EpochMillis
    revision: Revision
    stage: _SnakeName
    reason: _SnakeName
    status: Annotated[int, Meta(ge=100, le=599)]
    tenant: ShortText = "unknown"
    priority_class: ShortText = "unknown"
    pool: ShortText = "unknown"
    message: LongText = ""
    numbers: Annotated[dict[_SnakeName, _Figure], Meta(max_length=64)] = {}
    stages: Annotated[list[StageNote], Meta(max_length=32)] = []


class LastKnownGood(Struct, frozen=True):
    """The file in which a target keeps its slice, mode 0600.

    `applied_at` is when it was first applied (Unix time in ms): an ack that is sent again after a restart must not say
    a later time. 0: not known.
    """

    revision: Revision
    hash: Sha256
    content: dict[str, Any]
    applied_at: EpochMillis = 0


def encode_sse(name: str, message: StreamEvent) -> bytes:
    """One server-sent event. Its data is one line, since JSON escapes line ends."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(message) + b"\n\n"


def decode_sse(name: str, data: bytes) -> StreamEvent | None:
    """Read an event's data; None for an event of a later version that this one does not know.

    Raises: one of UNREADABLE, naming the field.
    """
    kind = _event_types.get(name)
    return None if kind is None else msgspec.json.decode(data, type=kind)
