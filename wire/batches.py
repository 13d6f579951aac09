"""What gateways and the control plane say to each other of the lines of batches."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

LINES_AT_ONCE = 256
_NAMES_AT_ONCE = 10_000
_Name = Annotated[str, Meta(max_length=200)]
_Names = Annotated[list[_Name], Meta(max_length=_NAMES_AT_ONCE)]
_Lines = Annotated[int, Meta(ge=0, le=LINES_AT_ONCE)]
_Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_Lease = Annotated[int, Meta(ge=0, le=2**53 - 1)]
_Millis = Annotated[int, Meta(ge=0, le=2**53 - 1)]

WORK_PATH = "/api/v1/batch-work"
# The tenant for whom a gateway calls, as its key says.
TENANT_HEADER = "X-Headworks-Tenant"


class Want(Struct):
    """So many lines of one model, by whichever of its names they ask for it."""

    models: Annotated[list[_Name], Meta(min_length=1, max_length=1000)]
    lines: _Lines


class LeaseRequest(Struct):
    """What a gateway has room for now. `others`: lines of models that are not `known` to it, which it then refuses.

    `resting`: tenants whose share is used up for a while.
    """

    wants: Annotated[list[Want], Meta(max_length=1000)]
    known: _Names
    others: _Lines = 0
    resting: _Names = []


class LeasedLine(Struct):
    """A line that is the gateway's until the lease ends. `tries`: this one included. `body`: JSON.

    `ends_at_ms`: the end of the batch's window, in Unix milliseconds.
    """

    id: int
    lease: int
    batch: str
    tenant: str
    endpoint: str
    model: str
    tries: int
    ends_at_ms: int
    body: Raw


class LeaseAnswer(Struct):
    """`lease_ms`: how long the lines are the gateway's without a renewal."""

    lines: list[LeasedLine]
    lease_ms: int


class HeldLine(Struct):
    id: _Id
    lease: _Lease


class Renewal(Struct):
    lines: Annotated[list[HeldLine], Meta(max_length=10_000)]


class RenewalAnswer(Struct):
    """`lost`: lines that are another's by now, or whose batch takes no more."""

    lost: list[int]


class LineResult(Struct):
    """What became of a line. `done` and `failed` with the answer; or `failed` with why there is none; or `again`.

    `body`: the answer's JSON, with its `status`. `after_ms`: how long the line rests before anybody tries it again.
    """

    id: _Id
    lease: _Lease
    outcome: Literal["done", "failed", "again"]
    status: Annotated[int, Meta(ge=0, le=599)] = 0
    request_id: Annotated[str, Meta(max_length=200)] = ""
    body: Raw | UnsetType = UNSET
    code: Annotated[str, Meta(max_length=64)] = ""
    message: Annotated[str, Meta(max_length=2000)] = ""
    after_ms: _Millis = 0


class Results(Struct):
    results: Annotated[list[LineResult], Meta(min_length=1, max_length=LINES_AT_ONCE)]


class ResultsAnswer(Struct):
    """All are done with. `counted`: those that ended a line by this call; the others had ended before."""

    counted: int
