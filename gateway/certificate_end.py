"""When the certificate that a gateway serves with ends, for its metrics."""

from __future__ import annotations

import logging
import ssl

from gateway.server import Certificate

log = logging.getLogger("headworks.gateway")
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which ssl.VerifyFlags does not name: an expired one has its end, too.
_AT_ANY_TIME = 0x200000


class CertificateEnd:
    """Asked at each push; the files are read again where they changed. What cannot be read leaves the answer as it was,
    as it leaves the certificate that is served.
    """

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._stamp: object = None
        self._ends_at: float | None = None

    def __call__(self) -> float | None:
        """Unix time; None where it is not known."""
        try:
            stamp = self._certificate.stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._ends_at = ends_at(self._certificate)
        except (OSError, ValueError) as error:
            log.warning("when the certificate ends is not known: %s", error)
        return self._ends_at


def ends_at(certificate: Certificate) -> float:
    """Unix time at which the leaf ends. Raises OSError, ValueError.

    The standard library tells it of a peer alone: so it is shown to a client of our own, in memory, that trusts it.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate.chain, certificate.key, password="")
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    asking.load_verify_locations(certificate.chain)
    asking.verify_flags |= ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _AT_ANY_TIME)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        for side in tuple(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    shown = client.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))
