"""Sending a mail by SMTP; runs in the child process, which is killed where a server takes too long."""

from __future__ import annotations

import email
import email.policy
import smtplib
import ssl
from typing import Any

from controlplane.alerts.delivery_plan import Outcome, Reason

_TEXT_CHARACTERS = 500


def send(given: dict[str, Any], limit_seconds: int) -> Outcome:
    """`given`: host, port, security, user, password, from, to, mail. How it ended; replies: RFC 5321, 4.2."""
    try:
        with _connected(given, limit_seconds) as server:
            if given["user"]:
                server.login(given["user"], given["password"])
            mail = email.message_from_string(given["mail"], policy=email.policy.SMTP)
            mail["From"] = given["from"]
            refused = server.send_message(mail, given["from"], given["to"])
    except smtplib.SMTPRecipientsRefused as error:
        return _replied(*next(iter(error.recipients.values())))
    except smtplib.SMTPResponseException as error:
        return _replied(error.smtp_code, error.smtp_error)
    except (ssl.SSLError, smtplib.SMTPNotSupportedError) as error:
        return Outcome(Reason.TLS, str(error))
    except TimeoutError:
        return Outcome(Reason.TIMED_OUT, f"no reply within {limit_seconds} s")
    except (smtplib.SMTPException, OSError) as error:
        return Outcome(Reason.UNREACHABLE, str(error) or type(error).__name__)
    text = "the mail server took it"
    if refused:
        text += f", but not for {', '.join(sorted(refused))}"
    return Outcome(Reason.TAKEN, text, status=250)


def _connected(given: dict[str, Any], limit_seconds: int) -> smtplib.SMTP:
    # By a name of its own: the machine's would be looked up first, for as long as a name server is silent.
    place, own = (given["host"], given["port"]), given["from"].rpartition("@")[2]
    if given["security"] == "tls":
        return smtplib.SMTP_SSL(*place, own, timeout=limit_seconds, context=ssl.create_default_context())
    server = smtplib.SMTP(*place, own, timeout=limit_seconds)
    if given["security"] == "starttls":
        server.starttls(context=ssl.create_default_context())
    return server


def _replied(code: int, said: bytes | str) -> Outcome:
    """4xx passes, 5xx lasts: but one that is about the mail itself, which no repeat mends (552, 554)."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    reason = Reason.BUSY if code < 500 else Reason.INVALID if code in (552, 554) else Reason.REJECTED
    return Outcome(reason, f"the mail server replied {code}", None, code, text[:_TEXT_CHARACTERS])
