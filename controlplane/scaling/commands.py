"""`headworks keda-scaler`: the process that KEDA asks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command to those of the parser."""
    text = "Serve KEDA's external scaler over gRPC from the control plane's scale signals (needs headworks[keda])."
    parser = commands.add_parser("keda-scaler", help=text, description=text)
    parser.add_argument("--url", required=True, help="the control plane, such as https://headworks.example.com")
    parser.add_argument("--token-file", required=True, help="a file with a viewer's API token")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=9090, help="0: a free one (default: %(default)s)")
    parser.add_argument("--certificate", help="TLS: a PEM file with the chain")
    parser.add_argument("--key", help="TLS: a PEM file with the key")
    parser.set_defaults(run=_run)


def _port(text: str) -> int:
    from wire.settings import whole_number

    try:
        return whole_number(0, 65_535)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _run(arguments: argparse.Namespace) -> int:
    import asyncio

    from controlplane.rest_client import Rest

    try:
        from controlplane.scaling.keda import serve
    except ImportError as error:
        print(f"keda-scaler needs headworks[keda]: {error}", file=sys.stderr)
        return 1
    if bool(arguments.certificate) != bool(arguments.key):
        print("give --certificate and --key together", file=sys.stderr)
        return 2
    try:
        token = Path(arguments.token_file).read_text().strip()
        certificate = None
        if arguments.key:
            certificate = (Path(arguments.key).read_bytes(), Path(arguments.certificate).read_bytes())
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if not token:
        print(f"{arguments.token_file} is empty; write a viewer's API token into it", file=sys.stderr)
        return 2
    try:
        asyncio.run(serve(Rest(arguments.url.rstrip("/"), token, ""), arguments.host, arguments.port, certificate))
    except (RuntimeError, ValueError) as error:
        print(f"it cannot listen at {arguments.host}:{arguments.port}: {error}", file=sys.stderr)
        return 1
    return 0
