"""`headworks-router-config`: enrol once, follow the configuration, keep the router's file, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from adapters.production_stack import settings
from adapters.production_stack.router_file import Choices
from adapters.production_stack.writer import RouterConfig
from wire.enrolment import CannotEnrol, EnrolAgain, Enrolment, enrol_once
from wire.settings import BadSetting, check_all
from wire.target import TargetClient, TargetRefused
from wire.target_options import TargetSettings, gateway_options

log = logging.getLogger("headworks.router-config")
_TARGET = TargetSettings(
    settings.CONTROL_URL, settings.JOIN_TOKEN, settings.JOIN_TOKEN_FILE, settings.NAME, settings.STATE_DIR
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM, 1 where it cannot start or go on, 2 for a bad setting; stderr says why."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        enrolment, file = _options(argv)
        check_all(settings.SETTINGS)
        choices = Choices(settings.ROUTING_LOGIC.read(), settings.SESSION_KEY.read(), settings.HEALTH_CHECKS.read())
        return asyncio.run(follow(enrolment, file, choices))
    except (BadSetting, CannotEnrol, TargetRefused) as error:
        print(f"headworks-router-config: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadSetting) else 1


def _options(argv: Sequence[str] | None) -> tuple[Enrolment, Path]:
    enrolment, more = gateway_options(
        "headworks-router-config",
        "Write the dynamic configuration file of vLLM production-stack's router from the configuration of a control "
        "plane, again at each change.",
        _TARGET,
        (settings.FILE,),
        argv,
    )
    return enrolment, more[settings.FILE.name]


async def follow(enrolment: Enrolment, file: Path, choices: Choices) -> int:
    """Keep the file until SIGTERM or SIGINT; the exit status. Raises: CannotEnrol, TargetRefused."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    stop = asyncio.create_task(asked.wait(), name="signal")
    following = asyncio.create_task(_follow(enrolment, file, choices), name="configuration")
    await asyncio.wait((stop, following), return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        stop.cancel()
        # It never ends by itself but with an error.
        await following
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    return 0


async def _follow(enrolment: Enrolment, file: Path, choices: Choices) -> None:
    await enrol_once(enrolment)
    router = RouterConfig(file, choices)
    client = TargetClient(
        control_url=enrolment.control_url,
        state_dir=enrolment.state_dir,
        on_snapshot=router.on_snapshot,
        enrol_again=EnrolAgain(enrolment),
    )
    client.load_last_known_good()
    log.info("router %s: its file is %s", enrolment.name, file)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        tasks.create_task(router.run(client.adopt_again))


if __name__ == "__main__":
    sys.exit(main())
