"""Django settings, made from the rows in `controlplane.settings_rows`."""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import dj_database_url
from cryptography.fernet import Fernet
from django.utils.translation import gettext_lazy as _

from controlplane import settings_rows as rows
from controlplane.batches import settings_rows as batch_rows
from controlplane.core import kept

BASE_DIR = Path(__file__).resolve().parent
DATA_DIR = rows.DATA_DIR.read().absolute()


# Where neither a setting nor a file gives a key, one that `core.start.settle_keys` keeps when a process starts: reading
# the settings leaves nothing behind, and only the database can tell whether a key is new or was lost.
SECRET_KEY = rows.SECRET_KEY.read() or kept.read(DATA_DIR / "secret-key", rows.long_secret) or secrets.token_urlsafe(50)
HEADWORKS_FIELD_KEY = (
    rows.FIELD_KEY.read() or kept.read(DATA_DIR / "field-key", rows.fernet_key) or Fernet.generate_key().decode()
)
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
    "controlplane.telemetry",
    "controlplane.routing",
    "controlplane.breakers",
    "controlplane.configs",
    "controlplane.alerts",
    "controlplane.rollouts",
    "controlplane.planner",
    "controlplane.batches",
    "controlplane.diagnosis",
    "controlplane.remediation",
    "controlplane.scaling",
    "controlplane.api",
    "controlplane.web",
    "dashboards",
]

MIDDLEWARE = [
    "controlplane.api.middleware.count_requests",
    "controlplane.core.middleware.see_client_address",
    "django.middleware.security.SecurityMiddleware",
    "controlplane.core.middleware.compress",
    "controlplane.core.middleware.ContentSecurityPolicy",
    "controlplane.core.middleware.ignore_odd_session_cookies",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "controlplane.core.middleware.CommonMiddleware",
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
LOGIN_REDIRECT_URL = "web:overview"
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
    if file := rows.sqlite_file():
        DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(file),
            "OPTIONS": {
                # A transaction takes the write lock when it begins: no deadlock between two that read first.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                # FULL: what was answered survives a power cut too.
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
            },
        }
    database: dict[str, Any] = dict(dj_database_url.parse(rows.DATABASE_URL.read()))
    database["PASSWORD"] = database["PASSWORD"] or rows.DATABASE_PASSWORD.read()
    database["OPTIONS"] = {
        # A server that is away or stuck ends a call instead of holding its thread for good. What DATABASE_URL gives
        # comes first, such as ?options=-c%20statement_timeout=0 for a migration of very large tables.
        "connect_timeout": 5,  # seconds
        "tcp_user_timeout": 10_000,  # ms until sent data that nobody confirms breaks the connection
        "options": "-c statement_timeout=60000",  # ms, waiting for locks included
        **database.get("OPTIONS", {}),
        # Requests run in short-lived threads, so connections are pooled by the driver, not kept by threads.
        "pool": {"min_size": 1, "max_size": 16, "timeout": 10},
    }
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
SESSION_ENGINE = "controlplane.core.sessions"
SESSION_COOKIE_AGE = int(timedelta(hours=rows.SESSION_HOURS.read()).total_seconds())
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "headworks_session", "headworks_csrf"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = rows.BODY_MAX_BYTES.read()
# Where the folder of batches is there already, as a volume is: a long file may be more than the place for small ones.
FILE_UPLOAD_TEMP_DIR = str(batch_rows.folder()) if batch_rows.folder().is_dir() else None

HEADWORKS_REDIS_URL = rows.REDIS_URL.read()
CELERY_BROKER_URL = HEADWORKS_REDIS_URL or "filesystem://"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    # They would say of every task that it was sent, came in and ended, several times a second.
    "loggers": {name: {"level": "WARNING"} for name in ("celery.beat", "celery.worker.strategy", "celery.app.trace")},
}
