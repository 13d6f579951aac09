from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.fernet import Fernet

from controlplane.core.errors import Conflict
from controlplane.core.sealed import seal, sealed_at, unseal


def test_a_secret_is_read_again_and_looks_different_each_time():
    assert unseal(seal("geheim ✓")) == "geheim ✓"
    assert seal("same") != seal("same")
    assert "same" not in seal("same")


def test_it_tells_when_a_secret_was_sealed():
    assert abs(datetime.now(UTC) - sealed_at(seal("x"))) < timedelta(seconds=2)


def test_another_key_is_named(settings):
    sealed = seal("x")
    settings.HEADWORKS_FIELD_KEY = Fernet.generate_key().decode()
    with pytest.raises(Conflict, match="HEADWORKS_FIELD_KEY"):
        unseal(sealed)
