"""`headworks-agent`: enrol this node once, then run its agent until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import aiohttp

from gpu_agent import settings
from gpu_agent.agent import Agent, Options
from wire.settings import BadSetting
from wire.snapshot import NAME_PATTERN
from wire.target import TargetRefused, enrol, load_credentials

log = logging.getLogger("headworks.agent")
_ENROL_RETRY_SECONDS = 5.0


class Unusable(Exception):
    """The agent cannot start; the message says what to change."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended by SIGTERM or SIGINT, 1 enrolment refused, 2 bad options or settings."""
    try:
        arguments = _parser().parse_args(argv)
        logging.basicConfig(
            level=settings.LOG_LEVEL.read().upper(),
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
            stream=sys.stderr,
        )
        asyncio.run(_serve(_options(arguments), arguments))
    except (BadSetting, Unusable) as error:
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
    parser.add_argument("--control-url", help="where the control plane answers")
    parser.add_argument("--name", help="name of this node (default: the host's name)")
    parser.add_argument("--state-dir", type=Path, help="folder for credentials and configuration")
    parser.add_argument("--join-token-file", type=Path, help="file with the single-use join token")
    parser.add_argument(
        "--join-token",
        help="the join token itself; others on this machine can see it in the process list, so prefer a file or "
        f"{settings.JOIN_TOKEN.name}",
    )
    return parser


def _options(arguments: argparse.Namespace) -> Options:
    control_url = arguments.control_url or settings.CONTROL_URL.read()
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s?#]*)?", control_url):
        raise Unusable("the control URL must be http(s)://host[:port][/path] without credentials")
    name = arguments.name or settings.NAME.read() or socket.gethostname().lower()
    if not re.fullmatch(NAME_PATTERN, name):
        raise Unusable(f"{name!r} cannot be a node's name: at most 63 of a-z 0-9 . _ - from a letter or digit on")
    return Options(
        control_url=control_url,
        name=name,
        state_dir=arguments.state_dir or settings.STATE_DIR.read(),
        version=version("headworks"),
        report_interval_seconds=settings.REPORT_INTERVAL_SECONDS.read(),
        probe_interval_seconds=settings.PROBE_INTERVAL_SECONDS.read(),
        page_timeout_seconds=settings.PAGE_TIMEOUT_SECONDS.read(),
        page_limit_bytes=settings.PAGE_LIMIT_BYTES.read(),
        inventory_interval_seconds=settings.INVENTORY_INTERVAL_SECONDS.read(),
        inventory_timeout_seconds=settings.INVENTORY_TIMEOUT_SECONDS.read(),
    )


async def _serve(options: Options, arguments: argparse.Namespace) -> None:
    work = asyncio.create_task(_work(options, arguments))
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("stopped")


async def _work(options: Options, arguments: argparse.Namespace) -> None:
    await _enrol_once(options, arguments)
    log.info("node %s reports to %s", options.name, options.control_url)
    await Agent(options).run()


async def _enrol_once(options: Options, arguments: argparse.Namespace) -> None:
    """Enrol unless that was done before, waiting for a control plane that is not there yet."""
    try:
        stored = load_credentials(options.state_dir)
    except OSError as error:
        raise Unusable(f"credentials in {options.state_dir} cannot be read: {error.strerror}") from error
    if stored is not None:
        if stored.name != options.name:
            raise Unusable(f"{options.state_dir} belongs to node {stored.name!r}, not to {options.name!r}")
        return
    join_token = _join_token(arguments)
    while True:
        try:
            await enrol(
                control_url=options.control_url,
                join_token=join_token,
                kind="node",
                name=options.name,
                version=options.version,
                state_dir=options.state_dir,
            )
        except aiohttp.ClientError as error:
            log.warning("the control plane does not answer: %s", error)
            await asyncio.sleep(random.uniform(0, _ENROL_RETRY_SECONDS))  # noqa: S311 - spreads load
        except OSError as error:
            raise Unusable(f"credentials cannot be kept in {options.state_dir}: {error.strerror}") from error
        else:
            log.info("enrolled as node %s", options.name)
            return


def _join_token(arguments: argparse.Namespace) -> str:
    token: str = arguments.join_token or settings.JOIN_TOKEN.read()
    file: Path = arguments.join_token_file or settings.JOIN_TOKEN_FILE.read()
    if token and arguments.join_token_file is None:
        return token
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"not enrolled yet, and the join token cannot be read from {file}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
