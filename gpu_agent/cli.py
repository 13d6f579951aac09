"""`headworks-agent`: enrol this node once, then run its agent until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from gpu_agent import settings
from gpu_agent.agent import Agent, Options
from gpu_agent.engines.node_engines import EngineOptions
from gpu_agent.host.watch import HostOptions
from gpu_agent.nvml.collector import CollectorOptions
from gpu_agent.nvml.release import CannotRelease
from gpu_agent.nvml.xids import BadXidRules
from gpu_agent.page.options import PageOptions
from gpu_agent.policy import BadPolicy, load_policy
from gpu_agent.pre_stop import LIMIT_SECONDS_MAX
from wire import VERSION
from wire.enrolment import CannotEnrol, EnrolAgain, Enrolment, enrol_once, own_name
from wire.settings import BadSetting, check_all, whole_number
from wire.target import TargetRefused

log = logging.getLogger("headworks.agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended by SIGTERM or SIGINT, 1 enrolment refused, 2 bad options or settings.

    Of `release-gpu`: that of the command it ran, 2 where it ran none. Of `pre-stop`: 0 the engine has no request left,
    1 it has, 2 the agent could not be asked.
    """
    try:
        arguments = _parser().parse_args(argv)
        if arguments.action == "release-gpu":
            return _release_gpu(arguments)
        if arguments.action == "pre-stop":
            return _pre_stop(arguments)
        check_all(settings.SETTINGS)
        logging.basicConfig(
            level=settings.LOG_LEVEL.read().upper(),
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
            stream=sys.stderr,
        )
        options = _options(arguments)
        asyncio.run(_serve(options, _enrolment(options, arguments)))
    except (BadSetting, BadXidRules, BadPolicy, CannotEnrol, CannotRelease) as error:
        print(f"headworks-agent: {error}", file=sys.stderr)
        return 2
    except TargetRefused as error:
        print(f"headworks-agent: refused: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headworks-agent", description="Report this node's GPUs and engines to a Headworks control plane."
    )
    parser.add_argument("--control-url", help=f"where the control plane answers ({settings.CONTROL_URL.name})")
    parser.add_argument("--name", help=f"name of this node (default: the host's name) ({settings.NAME.name})")
    parser.add_argument("--state-dir", help=f"folder for credentials and configuration ({settings.STATE_DIR.name})")
    parser.add_argument(
        "--join-token-file", help=f"file with the single-use join token ({settings.JOIN_TOKEN_FILE.name})"
    )
    parser.add_argument(
        "--join-token",
        help="the join token itself; others on this machine can see it in the process list, so prefer a file or "
        f"{settings.JOIN_TOKEN.name}",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="other than to run the agent:")
    release = actions.add_parser(
        "release-gpu",
        help="let the running agent close NVML while a command resets or slices GPUs",
        description="Let this node's agent close NVML while COMMAND runs (without one: until Ctrl-C).",
        usage="headworks-agent release-gpu [-h] [--state-dir DIR] [--limit-seconds N] [-- COMMAND ...]",
    )
    # Given before or after the action; SUPPRESS keeps the one from undoing the other.
    release.add_argument("--state-dir", default=argparse.SUPPRESS, help="the agent's own")
    release.add_argument(
        "--limit-seconds", help=f"the agent stays away so long at most ({settings.RELEASE_LIMIT_SECONDS.name})"
    )
    before = actions.add_parser(
        "pre-stop",
        help="have the running agent take an engine out of service, and wait until it has no request left",
        description="Have this node's agent take ENGINE out of service, and wait until it has no request left. Exit "
        "status: 0 it has none, 1 it has, 2 the agent could not be asked.",
    )
    before.add_argument("engine", metavar="ENGINE", help="its name at the control plane")
    before.add_argument(
        "--limit",
        type=_limit_seconds,
        default=120,
        metavar="SECONDS",
        help="wait so long at most (default: %(default)s)",
    )
    release.add_argument("command", nargs="*", metavar="COMMAND", help="program and arguments; no shell reads them")
    return parser


def _pre_stop(arguments: argparse.Namespace) -> int:
    from gpu_agent.pre_stop_command import pre_stop

    return pre_stop(arguments.engine, arguments.limit, PageOptions.from_settings())


def _limit_seconds(text: str) -> int:
    try:
        return whole_number(1, LIMIT_SECONDS_MAX)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _release_gpu(arguments: argparse.Namespace) -> int:
    # Late: an agent that runs for months holds only what it uses.
    from gpu_agent.nvml.release_command import ReleaseOptions, release_gpu

    options = ReleaseOptions(
        state_dir=settings.STATE_DIR.read_option(arguments.state_dir),
        limit_seconds=settings.RELEASE_LIMIT_SECONDS.read_option(arguments.limit_seconds),
        wait_seconds=settings.RELEASE_WAIT_SECONDS.read(),
    )
    return release_gpu(options, arguments.command)


def _options(arguments: argparse.Namespace) -> Options:
    name = own_name("node", settings.NAME.read_option(arguments.name))
    state_dir = settings.STATE_DIR.read_option(arguments.state_dir)
    policy = load_policy(settings.POLICY_FILE.read())
    return Options(
        control_url=settings.CONTROL_URL.read_option(arguments.control_url),
        name=name,
        state_dir=state_dir,
        version=VERSION,
        report_interval_seconds=settings.REPORT_INTERVAL_SECONDS.read(),
        engines=EngineOptions.from_settings(),
        hostname_label=settings.HOSTNAME_LABEL.read(),
        spool_bytes=settings.SPOOL_BYTES.read(),
        event_spool_bytes=settings.EVENT_SPOOL_BYTES.read(),
        gpus=CollectorOptions.from_settings(name, state_dir),
        policy=policy,
        act_seconds=settings.ACT_SECONDS.read(),
        host=HostOptions.from_settings(state_dir, policy),
        page=PageOptions.from_settings(),
        spot_notice=settings.SPOT_NOTICE.read(),
    )


async def _serve(options: Options, enrolment: Enrolment) -> None:
    work = asyncio.create_task(_work(options, enrolment))
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("stopped")


async def _work(options: Options, enrolment: Enrolment) -> None:
    await enrol_once(enrolment)
    log.info("node %s reports to %s", options.name, options.control_url)
    await Agent(options, EnrolAgain(enrolment)).run()


def _enrolment(options: Options, arguments: argparse.Namespace) -> Enrolment:
    # A file that is asked for on the command line goes before a token in the environment.
    from_environment = "" if arguments.join_token_file else settings.JOIN_TOKEN.read()
    return Enrolment(
        kind="node",
        control_url=options.control_url,
        name=options.name,
        version=options.version,
        state_dir=options.state_dir,
        join_token=from_environment if arguments.join_token is None else arguments.join_token,
        join_token_file=settings.JOIN_TOKEN_FILE.read_option(arguments.join_token_file),
    )


if __name__ == "__main__":
    sys.exit(main())
