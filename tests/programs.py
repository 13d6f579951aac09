"""Programs that tests start or call, and the Debian package that brings each. Standard library only.

`python3 -m tests.programs` prints the packages, one a line: what `.ci/run` installs.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """`places` are globs tried after PATH, newest version last: Debian keeps some servers out of a user's PATH."""

    package: str
    command: str
    places: tuple[str, ...] = ()

    def find(self) -> Path | None:
        if on_path := shutil.which(self.command):
            return Path(on_path)
        found = [file for place in self.places for file in sorted(Path("/").glob(place))]
        return found[-1] if found else None


_POSTGRES = "usr/lib/postgresql/*/bin"
PROGRAMS = {
    "alertmanager": Program("prometheus-alertmanager", "prometheus-alertmanager"),
    "amtool": Program("prometheus-alertmanager", "amtool"),
    # gcc alone brings no headers of the C library.
    "cc": Program("build-essential", "cc"),
    "chromium": Program("chromium", "chromium"),
    "curl": Program("curl", "curl"),
    "git": Program("git", "git"),
    "haproxy": Program("haproxy", "haproxy", ("usr/sbin/haproxy",)),
    "initdb": Program("postgresql", "initdb", (f"{_POSTGRES}/initdb",)),
    "jq": Program("jq", "jq"),
    "msgcmp": Program("gettext", "msgcmp"),
    "msgfmt": Program("gettext", "msgfmt"),
    "nginx": Program("nginx-light", "nginx", ("usr/sbin/nginx",)),
    "postgres": Program("postgresql", "postgres", (f"{_POSTGRES}/postgres",)),
    "prometheus": Program("prometheus", "prometheus"),
    "promtool": Program("prometheus", "promtool"),
    "redis-server": Program("redis-server", "redis-server"),
    "systemd-analyze": Program("systemd", "systemd-analyze"),
    "victoria-metrics": Program("victoria-metrics", "victoria-metrics"),
    "vmagent": Program("victoria-metrics", "vmagent"),
}

if __name__ == "__main__":
    print("\n".join(sorted({program.package for program in PROGRAMS.values()})))
