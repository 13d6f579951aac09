"""What must hold before a process of the control plane starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from controlplane.core.kept import CannotStart
from controlplane.core.models import FieldKeyCanary
from controlplane.core.sealed import seal, unseal
from controlplane.core.start import settle_keys

FIELD_KEY = Fernet.generate_key().decode()

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def data_dir(settings, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    # As in a process that found no file and made one for itself.
    settings.SECRET_KEY = "s" * 50
    settings.HEADWORKS_FIELD_KEY = FIELD_KEY
    return tmp_path


def test_a_first_start_keeps_its_keys_and_a_later_one_takes_them(data_dir: Path, settings) -> None:
    settle_keys()
    sealed = seal("geheim")
    assert (data_dir / "field-key").read_text() == FIELD_KEY
    settings.SECRET_KEY = "t" * 50
    settle_keys()
    assert settings.SECRET_KEY == "s" * 50
    assert unseal(sealed) == "geheim"
    assert FieldKeyCanary.objects.count() == 1


def test_another_field_key_is_refused(settings) -> None:
    settle_keys()
    settings.HEADWORKS_FIELD_KEY = Fernet.generate_key().decode()
    with pytest.raises(CannotStart, match="HEADWORKS_FIELD_KEY"):
        settle_keys()


def test_no_field_key_is_made_in_the_place_of_a_lost_one(data_dir: Path, settings) -> None:
    settle_keys()
    (data_dir / "field-key").unlink()
    settings.HEADWORKS_FIELD_KEY = Fernet.generate_key().decode()
    with pytest.raises(CannotStart, match=f"restore {data_dir / 'field-key'}"):
        settle_keys()
    assert not (data_dir / "field-key").exists()


def test_keys_of_the_environment_are_not_written_to_disk(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_SECRET_KEY", "s" * 50)
    monkeypatch.setenv("HEADWORKS_FIELD_KEY", FIELD_KEY)
    settle_keys()
    assert list(data_dir.iterdir()) == []
