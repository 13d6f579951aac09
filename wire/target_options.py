"""The command line of a process that becomes a gateway among the targets: options that stand for its settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wire import VERSION
from wire.enrolment import Enrolment, own_name
from wire.settings import Setting


@dataclass(frozen=True)
class TargetSettings:
    """The rows that say where to enrol and as whom. What stands before `CONTROL_URL` in a name begins all of them."""

    control_url: Setting[str]
    join_token: Setting[str]
    join_token_file: Setting[Path]
    name: Setting[str]
    state_dir: Setting[Path]

    @property
    def prefix(self) -> str:
        return self.control_url.name.removesuffix("CONTROL_URL")


def gateway_options(
    program: str,
    description: str,
    target: TargetSettings,
    more: Sequence[Setting[Any]],
    argv: Sequence[str] | None,
) -> tuple[Enrolment, dict[str, Any]]:
    """How to enrol, and the value of each row of `more` by its name.

    The join token is no option, since others see a process list; a file that is asked for goes before the setting.
    Raises: BadSetting, CannotEnrol.
    """
    rows: tuple[Setting[Any], ...] = (target.control_url, target.join_token_file, target.name, target.state_dir, *more)
    parser = argparse.ArgumentParser(prog=program, description=description)
    for row in rows:
        option = "--" + row.name.removeprefix(target.prefix).lower().replace("_", "-")
        parser.add_argument(option, dest=row.name, help=f"{row.reason} ({row.name})".replace("%", "%%"))
    given = vars(parser.parse_args(argv))
    value = {row.name: row.read_option(given[row.name]) for row in rows}
    enrolment = Enrolment(
        kind="gateway",
        control_url=value[target.control_url.name],
        name=own_name("gateway", value[target.name.name]),
        version=VERSION,
        state_dir=value[target.state_dir.name],
        join_token="" if given[target.join_token_file.name] is not None else target.join_token.read(),
        join_token_file=value[target.join_token_file.name],
    )
    return enrolment, {row.name: value[row.name] for row in more}
