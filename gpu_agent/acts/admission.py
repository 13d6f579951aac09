"""May an act be done here and now? Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from msgspec import UNSET

from gpu_agent.acts.outcome import NotDone, Reason, refused
from gpu_agent.policy import NodePolicy
from wire.acts import ActRefused, Request, read_act
from wire.snapshot import Act, NodeEngine

# Rules of wire.acts that are reasons by themselves; all others are about an argument.
_FORM_REASONS = ("unknown_action", "wrong_subject", "wrong_kind")
# No engine is called so.
_FILES_LANE = "model files"


def subject(act: Act) -> str:
    """The engine that an act is for; empty: the node itself."""
    return "" if act.engine is UNSET else act.engine


def lane(act: Act) -> str:
    """Acts in one of these follow each other; others do not wait for them, as none does for hours of a fetch."""
    return _FILES_LANE if act.action in ("fetch_model", "check_model") else subject(act)


def admit(act: Act, engine: NodeEngine | None, policy: NodePolicy) -> Request:
    """The checked request. `engine`: the slice's, of the act's name. Raises: NotDone."""
    name = subject(act)
    if name and engine is None:
        raise refused("no_such_engine", f"this node has no engine {name!r}")
    try:
        request = read_act(act, engine.kind if engine else None)
    except ActRefused as error:
        rule = error.problems[0].rule
        reason = cast(Reason, rule if rule in _FORM_REASONS else "bad_arguments")
        raise refused(reason, "; ".join(f"{problem.path}: {problem.message}" for problem in error.problems)) from error
    allowed = policy.engine(name).allow if name else policy.allow
    if act.action not in allowed:
        what = f"on engine {name}" if name else "on the node itself"
        only = ", ".join(allowed) or "nothing"
        raise refused("not_allowed", f"{act.action} is not allowed by this node's policy; {what} it allows {only}")
    return request


def check_time(act: Act, now_ms: int) -> None:
    """Raises: NotDone for an act whose time is over, by this node's clock."""
    if now_ms > act.expires_at_ms:
        until = datetime.fromtimestamp(act.expires_at_ms / 1000, UTC)
        raise NotDone("expired", "expired", f"it was to be begun until {until:%Y-%m-%d %H:%M:%S} UTC")
