"""A mail server for the tests: as much SMTP (RFC 5321) as a client needs, answering as it is told."""

from __future__ import annotations

import base64
import email
import email.policy
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import NamedTuple


class Mail(NamedTuple):
    """One that was taken: who logged in (empty: nobody), the envelope, and what it says. `secure`: over TLS."""

    user: str
    sender: str
    to: list[str]
    message: EmailMessage
    secure: bool


class MailServer:
    """`replies` are given instead of the usual one, by the command: `{"RCPT": "550 no such user"}`."""

    def __init__(self, replies: dict[str, str], tls: ssl.SSLContext | None = None) -> None:
        self.got: list[Mail] = []
        self.replies, self.tls = replies, tls
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                _Session(self, outer).serve()

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])


class _Session:
    def __init__(self, handler: socketserver.StreamRequestHandler, server: MailServer) -> None:
        self.connection, self.server = handler.connection, server
        self.read, self.write = handler.rfile, handler.wfile
        self.user, self.sender, self.to, self.secure = "", "", list[str](), False

    def serve(self) -> None:
        self._say("220 mail.example")
        while line := self.read.readline().decode().strip():
            command, _, rest = line.partition(" ")
            command = command.upper()
            if command == "QUIT":
                self._say("221 bye")
                return
            self._say(self.server.replies.get(command) or getattr(self, f"_{command.lower()}", self._unknown)(rest))

    def _say(self, reply: str) -> None:
        self.write.write(f"{reply}\r\n".encode())
        if reply == "220 go ahead":
            assert self.server.tls is not None
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
            self.read, self.write = self.connection.makefile("rb"), self.connection.makefile("wb", buffering=0)
            self.secure = True

    def _unknown(self, rest: str) -> str:
        return "502 no such command"

    def _ehlo(self, rest: str) -> str:
        starttls = "250-STARTTLS\r\n" if self.server.tls and not self.secure else ""
        return f"250-mail.example\r\n{starttls}250 AUTH PLAIN"

    def _starttls(self, rest: str) -> str:
        return "220 go ahead"

    def _auth(self, rest: str) -> str:
        _, user, password = base64.b64decode(rest.removeprefix("PLAIN ")).decode().split("\0")
        self.user = user
        return "235 welcome" if password == "pw-123456" else f"535 wrong password {password}"

    def _mail(self, rest: str) -> str:
        self.sender = rest.partition("<")[2].partition(">")[0]
        return "250 ok"

    def _rcpt(self, rest: str) -> str:
        self.to.append(rest.partition("<")[2].partition(">")[0])
        return "250 ok"

    def _data(self, rest: str) -> str:
        self._say("354 go on")
        lines = []
        while (line := self.read.readline()) != b".\r\n":
            lines.append(line.removeprefix(b"."))
        message = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        self.server.got.append(Mail(self.user, self.sender, self.to, message, self.secure))
        return "250 taken"


@contextmanager
def mail_server(tls: ssl.SSLContext | None = None, **replies: str) -> Iterator[MailServer]:
    made = MailServer(replies, tls)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()
