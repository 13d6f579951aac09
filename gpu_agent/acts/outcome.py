"""Why an act was not done: every reason by name; docs/acts.md says what to do about each."""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal[
    "unknown_action",
    "wrong_subject",
    "wrong_kind",
    "bad_arguments",
    "no_such_engine",
    "not_allowed",
    "url_not_allowed",
    "expired",
    "journal",
    "dev_mode_off",
    "asleep",
    "not_cordoned",
    "unknown_load",
    "lora_updating_off",
    "path_not_allowed",
    "argument_not_allowed",
    "config_file",
    "engine_refused",
    "engine_unreachable",
    "timeout",
    "command_failed",
    "did_not_serve",
    "did_not_stop",
    "did_not_reboot",
    "interrupted",
    "no_manifest",
    "files_differ",
    "gpus_in_use",
    "internal",
]
REASONS: tuple[Reason, ...] = get_args(Reason)


class NotDone(Exception):
    """An act that ends without being done. `refused`: nothing was changed; `failed`: something may have been."""

    def __init__(self, state: Literal["refused", "failed", "expired"], reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.state, self.reason, self.detail = state, reason, detail


def refused(reason: Reason, detail: str) -> NotDone:
    return NotDone("refused", reason, detail)


def failed(reason: Reason, detail: str) -> NotDone:
    return NotDone("failed", reason, detail)
