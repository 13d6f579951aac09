"""`headworks-merged-metrics`: one metrics page for Triton with vLLM inside."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_agent.merged import settings
from gpu_agent.merged.server import Options, serve
from gpu_agent.merged.wipe import NotWiped, wipe
from wire.settings import BadSetting, check_all


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended by SIGTERM or SIGINT, or wiped; 1 the address is taken, or not wiped; 2 bad settings."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "wipe":
            there = arguments.folder.exists()
            removed = wipe(arguments.folder)
            print(f"{removed} files removed from {arguments.folder}" + ("" if there else ", which is not there"))
            return 0
        check_all(settings.SETTINGS)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        host, port = settings.LISTEN.read_option(arguments.listen)
        asyncio.run(_run(_options(arguments), host, port))
    except BadSetting as error:
        print(f"headworks-merged-metrics: {error}", file=sys.stderr)
        return 2
    except (NotWiped, OSError) as error:
        print(f"headworks-merged-metrics: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headworks-merged-metrics", description=__doc__)
    parser.add_argument("--multiproc-dir", help=f"vLLM's folder ({settings.MULTIPROC_DIR.name})")
    parser.add_argument("--triton-url", help=f"Triton's own page ({settings.TRITON_URL.name})")
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"where to serve ({settings.LISTEN.name})")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    wiping = commands.add_parser("wipe", help="empty vLLM's folder, before each start of Triton")
    wiping.add_argument("folder", type=Path, metavar="FOLDER")
    return parser


def _options(arguments: argparse.Namespace) -> Options:
    return Options(
        multiproc_dir=settings.MULTIPROC_DIR.read_option(arguments.multiproc_dir),
        triton_url=settings.TRITON_URL.read_option(arguments.triton_url),
        timeout_seconds=settings.TIMEOUT_SECONDS.read(),
        page_limit_bytes=settings.PAGE_LIMIT_BYTES.read(),
        files_limit=settings.FILES_LIMIT.read(),
    )


async def _run(options: Options, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(options, host, port, stop)


if __name__ == "__main__":
    sys.exit(main())
