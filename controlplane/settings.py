"""Django settings, made from the rows in `controlplane.settings_rows`."""

from __future__ import annotations

import os
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import dj_database_url
from cryptography.fernet import Fernet
from django.utils.translation import gettext_lazy as _

from controlplane import settings_rows as rows

BASE_DIR = Path(__file__).resolve().parent
DATA_DIR = rows.DATA_DIR.read().absolute()


def _kept_secret(name: str, make: Any) -> str:
    """A secret made once and kept in the data directory, readable by its owner only."""
    file = DATA_DIR / name
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = DATA_DIR / f".{name}.{os.getpid()}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(make())
        try:
            # link() fails where the name exists: of two first starts at once, one wins and both read the same.
            os.link(draft, file)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return file.read_text().strip()


SECRET_KEY = rows.SECRET_KEY.read() or _kept_secret("secret-key", lambda: secrets.token_urlsafe(50))
HEADWORKS_FIELD_KEY = rows.FIELD_KEY.read() or _kept_secret("field-key", lambda: Fernet.generate_key().decode())
DEBUG = False
ALLOWED_HOSTS = list(rows.ALLOWED_HOSTS.read())
CSRF_TRUSTED_ORIGINS = list(rows.TRUSTED_ORIGINS.read())

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "ninja",
    "controlplane.core",
    "controlplane.fleet",
    "controlplane.tenants",
    "controlplane.routing",
    "controlplane.breakers",
    "controlplane.configs",
    "controlplane.api",
    "controlplane.web",
]

MIDDLEWARE = [
    "controlplane.api.middleware.count_requests",
    "django.middleware.security.SecurityMiddleware",
    "controlplane.core.middleware.ContentSecurityPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
AUTH_USER_MODEL = "core.User"
LOGIN_URL = "web:login"
LOGIN_REDIRECT_URL = "web:tenants"
LOGOUT_REDIRECT_URL = "web:login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def _database() -> dict[str, Any]:
    url = rows.DATABASE_URL.read()
    if not url:
        url = f"sqlite:///{DATA_DIR / 'headworks.sqlite3'}"
    database: dict[str, Any] = dict(dj_database_url.parse(url))
    if database["ENGINE"].endswith("sqlite3"):
        DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
        database["OPTIONS"] = {
            # A transaction takes the write lock when it begins: no deadlock between two that read first.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # FULL: what was answered survives a power cut too.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
        }
    else:
        # Requests run in short-lived threads, so connections are pooled by the driver, not kept by threads.
        database["OPTIONS"] = {**database.get("OPTIONS", {}), "pool": {"min_size": 1, "max_size": 16, "timeout": 10}}
    return database


DATABASES = {"default": _database()}

PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LANGUAGE_CODE = rows.LANGUAGE.read()
LANGUAGES = [("en", _("English")), ("tr", _("Turkish"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
}

_https = rows.HTTPS.read()
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SESSION_COOKIE_AGE = int(timedelta(hours=rows.SESSION_HOURS.read()).total_seconds())
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "headworks_session", "headworks_csrf"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = rows.BODY_MAX_BYTES.read()

HEADWORKS_REDIS_URL = rows.REDIS_URL.read()
CELERY_BROKER_URL = HEADWORKS_REDIS_URL or "filesystem://"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
}
