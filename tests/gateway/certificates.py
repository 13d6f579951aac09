"""Certificates for 127.0.0.1 that sign themselves."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class OwnCertificate:
    """`chain` and `key` in a folder; `write` puts another pair there, as a renewal does."""

    def __init__(self, folder: Path) -> None:
        self.chain, self.key = folder / "chain.pem", folder / "key.pem"
        self.environment = {
            "HEADWORKS_GATEWAY_TLS_CERT": str(self.chain),
            "HEADWORKS_GATEWAY_TLS_KEY": str(self.key),
        }
        self.write()

    def write(self, life: datetime.timedelta = datetime.timedelta(days=1)) -> None:
        """Both files are replaced whole."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
        now = datetime.datetime.now(datetime.UTC)
        host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + life) - datetime.timedelta(hours=1))
            .not_valid_after(now + life)
            .add_extension(host, critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        plain = serialization.NoEncryption()
        _replace(self.key, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        _replace(self.chain, certificate.public_bytes(pem))

    def trusted(self) -> ssl.SSLContext:
        """What a client needs to trust the certificate that the files hold now, and no other."""
        return ssl.create_default_context(cafile=self.chain)


def _replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o600)
    os.replace(new, file)
