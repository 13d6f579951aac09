"""Which values the control plane's settings take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane import settings_rows as rows
from controlplane.core import oidc_rows
from controlplane.telemetry import settings_rows as telemetry_rows
from wire.settings import BadSetting, Setting, check_all, comma_separated, path


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (rows.DATABASE_URL, "postgres://u:p@db.example:5432/headworks?sslmode=require"),
        (rows.DATABASE_URL, "postgresql:///headworks"),
        (rows.DATABASE_URL, "sqlite:////var/lib/headworks/db.sqlite3"),
        (rows.REDIS_URL, "redis://:p@redis.example/0"),
        (rows.REDIS_URL, "rediss://redis.example:6380/1"),
        (rows.SECRET_KEY, "k" * 32),
        (rows.FIELD_KEY, "dGhpcnR5LXR3byBieXRlcyBmb3IgdGhlc2UgdGVzdHM="),
        (rows.HOST, "::1"),
        (oidc_rows.ISSUER, "https://id.example/realms/lab"),
    ],
)
def test_a_value_that_can_be_used_is_taken_as_it_is(setting: Setting[Any], text: str) -> None:
    assert setting.read({setting.name: text}) == text


@pytest.mark.parametrize(
    ("setting", "text", "right"),
    [
        (rows.DATABASE_URL, "mysql://db.example/headworks", "postgres://user:password@host:port/name"),
        (rows.DATABASE_URL, "headworks", "postgres://user:password@host:port/name"),
        (rows.DATABASE_URL, "postgres://db.example:port/headworks", "postgres://user:password@host:port/name"),
        (rows.DATABASE_URL, "postgres://db.example", "postgres://user:password@host:port/name"),
        (rows.DATABASE_URL, "sqlite:///", "sqlite:////path"),
        (rows.REDIS_URL, "http://redis.example", "redis://host:port/number"),
        (rows.REDIS_URL, "redis://", "redis://host:port/number"),
        (rows.REDIS_URL, "redis://redis.example:70000", "redis://host:port/number"),
        (rows.SECRET_KEY, "k" * 31, "32 random characters or more"),
        (rows.FIELD_KEY, "k" * 44, "32 random bytes in URL-safe base64"),
        (rows.FIELD_KEY, "ключ", "32 random bytes in URL-safe base64"),
        (rows.HOST, "localhost", "an address of this machine"),
        (oidc_rows.SCOPES, "profile", "openid among them"),
        (oidc_rows.ALGORITHMS_TAKEN, "HS256", "give some of RS256"),
        (oidc_rows.ROLES, '{"ops": "operator"}', "give JSON such as"),
        (oidc_rows.ROLES, '{"ops": {"role": "root"}}', "give JSON such as"),
        (oidc_rows.ROLES, '{"ops": {"role": "admin", "tenants": ["acme"]}}', "of the whole fleet"),
        (rows.TRUSTED_ORIGINS, "headworks.example", "https://host"),
        (rows.TRUSTED_ORIGINS, "https://headworks.example/path", "without a path"),
    ],
)
def test_one_that_cannot_is_refused_with_what_would_be_right(setting: Setting[Any], text: str, right: str) -> None:
    with pytest.raises(BadSetting, match=right) as refused:
        setting.read({setting.name: text})
    shown = str(refused.value).partition(" is not valid")[0]
    assert (text in shown) != setting.secret


def test_all_rows_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    every = (*rows.SETTINGS, *telemetry_rows.SETTINGS, *oidc_rows.SETTINGS)
    check_all(every)
    for setting in every:
        if setting.parse in (str, path, comma_separated):
            continue
        monkeypatch.setenv(setting.name, "?")
        with pytest.raises(BadSetting, match=setting.name):
            check_all(every)
        monkeypatch.delenv(setting.name)


def test_sqlite_lies_in_the_data_directory_or_where_the_address_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_DATA_DIR", "/data")
    for url, file in (
        ("", "/data/headworks.sqlite3"),
        ("sqlite:////srv/a%20b.sqlite3", "/srv/a b.sqlite3"),
        ("postgres://db.example/headworks", None),
    ):
        monkeypatch.setenv("HEADWORKS_DATABASE_URL", url)
        assert rows.sqlite_file() == (Path(file) if file else None)
