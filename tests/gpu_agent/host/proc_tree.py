"""A folder that reads like /proc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_SOCKET_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
BOOT_SECONDS = 1_700_000_000


class ProcTree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.boot(BOOT_SECONDS)
        (root / "net").mkdir()
        self.tcp([])

    def boot(self, seconds: int) -> None:
        (self.root / "stat").write_text(f"cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nbtime {seconds}\n")

    def tcp(self, rows: Iterable[str], table: str = "tcp") -> None:
        (self.root / "net" / table).write_text(_SOCKET_HEAD + "".join(f"{row}\n" for row in rows))

    def process(
        self,
        pid: int,
        name: str,
        parent: int = 1,
        *,
        started_ticks: int = 100,
        cpu_ticks: int = 0,
        words: Iterable[str] = (),
        sockets: Iterable[str] = (),
        open_files: int = 0,
        limit: str = "1024",
    ) -> None:
        """`sockets`: inodes, each one of its open files; `open_files` are others."""
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        fields = ["S", str(parent), *["0"] * 9, str(cpu_ticks), "0", "0", "0", "20", "0", "3", "0", str(started_ticks)]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join([*fields, '9', '2', '0'])}\n")
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
        (folder / "limits").write_text(f"Limit\nMax open files            {limit}                 4096     files\n")
        targets = [f"socket:[{inode}]" for inode in sockets] + ["/dev/null"] * open_files
        for number, target in enumerate(targets):
            (folder / "fd" / str(number)).symlink_to(target)

    def ends(self, pid: int) -> None:
        folder = self.root / str(pid)
        for file in [*(folder / "fd").iterdir(), *(each for each in folder.iterdir() if each.name != "fd")]:
            file.unlink()
        (folder / "fd").rmdir()
        folder.rmdir()


def row(port: int, state: str, inode: str = "0", backlog: int = 0, address: str = "0100007F") -> str:
    local = f"{address}:{port:04X}"
    return f"   0: {local} 0200007F:C350 {state} 00000000:{backlog:08X} 00:00000000 00000000     0        0 {inode} 1 0"
