"""When a certificate ends, as the gateway's metrics tell it."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509

from gateway.certificate_end import CertificateEnd, ends_at
from gateway.server import Certificate
from tests.gateway.certificates import OwnCertificate


@pytest.fixture
def files(tmp_path: Path) -> OwnCertificate:
    return OwnCertificate(tmp_path)


def written(files: OwnCertificate) -> float:
    return x509.load_pem_x509_certificate(files.chain.read_bytes()).not_valid_after_utc.timestamp()


@pytest.mark.parametrize("days", [-3, 1, 4000])
def test_it_is_what_the_certificate_says_also_of_one_that_has_ended(files: OwnCertificate, days: int):
    files.write(life=datetime.timedelta(days=days))
    assert ends_at(Certificate(files.chain, files.key)) == written(files)


def test_a_renewal_is_seen_and_files_that_are_none_change_nothing(files: OwnCertificate):
    end = CertificateEnd(Certificate(files.chain, files.key))
    first = written(files)
    assert end() == first
    files.write(life=datetime.timedelta(days=9))
    renewed = written(files)
    assert end() == renewed != first
    files.chain.write_text("no certificate")
    assert end() == renewed
    files.chain.unlink()
    assert end() == renewed


def test_it_is_read_once_as_long_as_the_files_are_the_same(files: OwnCertificate, monkeypatch: pytest.MonkeyPatch):
    end = CertificateEnd(Certificate(files.chain, files.key))
    end()
    monkeypatch.setattr("gateway.certificate_end.ends_at", pytest.fail)
    end()
