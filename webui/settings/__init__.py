"""Django's settings. Everything that differs between installations comes from the environment:

LOOPLANE_STATE (database, queue, runs), DATABASE_URL and REDIS_URL (real servers in place of the embedded ones),
LOOPLANE_HOSTS (further host names), LOOPLANE_HTTPS=1 (a proxy in front speaks TLS and sets X-Forwarded-Proto),
LOOPLANE_TRUSTED_PROXIES (addresses of proxies whose X-Forwarded-* count), LOOPLANE_RATE_LIMITS (api=6000, exports=0),
LOOPLANE_RUNNERD=1 (set by the supervisor where it keeps a privileged runner), LOOPLANE_BENCH, LOOPLANE_BENCH_TAGS and
LOOPLANE_BENCH_SIM=0 (which bench a worker is of, its tags, whether it simulates).
The values for SQLite, the broker and the headers were measured in design/console.md §1, §5 and §7.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

from testbed.command.places import SOURCE, runs_folder, state_folder
from webui.connections import postgres_settings, redis_options
from webui.settings.environment import networks, rates
from webui.settings.secret_key import secret_key

STATE: Path = state_folder()
RUNS_FOLDER: Path = runs_folder()
DATABASE_FOLDER: Path = STATE / "db"
"""The one folder that belongs to the service user: database, secret key, queue, output of launched simulations."""
RUNNERD_SOCKET: Path = STATE / "run" / "runnerd.sock"
RUNNERD_EXPECTED = os.environ.get("LOOPLANE_RUNNERD") == "1"
"""Whether the supervisor keeps a runnerd: then one that does not answer is about to, and runs wait for it."""
EXPERIMENTS_FOLDER: Path = SOURCE / "fixtures" / "experiments"

SECRET_KEY = secret_key(DATABASE_FOLDER / "secret_key")
DEBUG = False
"""Never on: an error page of Django's would show settings. Errors go to the log."""

ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", *filter(None, os.environ.get("LOOPLANE_HOSTS", "").split(","))]

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "webui.accounts",
    "webui.audit",
    "webui.benches",
    "webui.catalogue",
    "webui.hooks",
    "webui.metering",
    "webui.runs",
    "webui.compare",
]
MIDDLEWARE = [
    "webui.metering.middleware.RequestMeter",
    "webui.accounts.proxies.TrustedProxies",
    "django.middleware.security.SecurityMiddleware",
    "webui.headers.SecurityHeaders",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "webui.api.errors.ApiErrorShape",
    "webui.audit.origin.RequestOrigin",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "webui.accounts.gate.AccountGate",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "webui.urls"
ASGI_APPLICATION = "webui.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [SOURCE / "webui" / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "webui.accounts.context.may",
            ],
            "builtins": ["webui.runs.templatetags.console"],
        },
    }
]

# --- database ------------------------------------------------------------------------------------------------------
# IMMEDIATE is what makes WAL safe to write from two processes: a DEFERRED transaction that upgrades fails at once,
# timeout or not (0 against 4,209 locked errors in the measurement).
_SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
if os.environ.get("DATABASE_URL"):
    DATABASES: dict[str, Any] = {"default": postgres_settings(os.environ["DATABASE_URL"])}
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATABASE_FOLDER / "console.sqlite3",
            "OPTIONS": _SQLITE_OPTIONS,
        }
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- broker ----------------------------------------------------------------------------------------------------------
# No broker is trusted for exactly-once: the row is the truth, claimed by lease (webui.runs.services).
QUEUE_FOLDER = DATABASE_FOLDER / "queue"
CELERY_BROKER_URL = os.environ.get("REDIS_URL") or "filesystem://localhost/"
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = (
    redis_options()
    if os.environ.get("REDIS_URL")
    else {
        "data_folder_in": str(QUEUE_FOLDER / "messages"),
        "data_folder_out": str(QUEUE_FOLDER / "messages"),
        "control_folder": str(QUEUE_FOLDER / "control"),
        "polling_interval": 0.2,
    }
)
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_ENABLE_REMOTE_CONTROL = bool(os.environ.get("REDIS_URL"))
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
"""A worker waits for its broker as long as it takes; what it carries out does not need it."""
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_DEFAULT_QUEUE = "runs"

# --- benches ---------------------------------------------------------------------------------------------------------
# Read by workers alone: each belongs to one bench (webui.benches).
BENCH_NAME = os.environ.get("LOOPLANE_BENCH") or socket.gethostname()
BENCH_TAGS = [tag.strip() for tag in os.environ.get("LOOPLANE_BENCH_TAGS", "").split(",") if tag.strip()]
BENCH_SIMULATES = os.environ.get("LOOPLANE_BENCH_SIM", "1") != "0"
BENCH_LEAST_DISK_MIB = 1024
"""Free space of the runs folder below which a bench takes no more runs."""

# --- accounts --------------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "experiments"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

QUOTA = {
    "queued_runs": 20,
    "active_runs": 4,
    "bench_minutes_per_day": 480,
    "run_minutes": 60,
    "lease_minutes": 240,
}
"""What everybody may have (accounts.Quota has the meanings); an admin can give a person more or less."""

RATE_LIMITS = rates(
    "LOOPLANE_RATE_LIMITS",
    os.environ.get("LOOPLANE_RATE_LIMITS", ""),
    {"api": 1200, "strangers": 300, "runs": 120, "exports": 30, "sign-in": 60, "account": 30},
)
"""How often a minute: requests of one person to the API, of one address to it without a good token, runs started,
exports made, sign-ins from one address, changes of passwords and tokens. 0: no limit. More is answered with 429."""

_HOOK_HOSTS = os.environ.get("LOOPLANE_HOOK_HOSTS", "").split(",")
HOOK_HOSTS = tuple(part.strip().lower() for part in _HOOK_HOSTS if part.strip())
"""Hosts and networks to which webhooks may go although their addresses are not public: `ci.intranet, 10.0.0.0/8`."""
SCRAPE_TOKEN = os.environ.get("LOOPLANE_SCRAPE_TOKEN") or secret_key(DATABASE_FOLDER / "scrape_token")
"""What Prometheus shows at /metrics; made with the installation unless it is given."""

# --- transport -------------------------------------------------------------------------------------------------------
_HTTPS = os.environ.get("LOOPLANE_HTTPS") == "1"
SESSION_COOKIE_SECURE = _HTTPS
CSRF_COOKIE_SECURE = _HTTPS
SECURE_SSL_REDIRECT = _HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if _HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = _HTTPS
SECURE_HSTS_PRELOAD = _HTTPS
TRUSTED_PROXIES = networks(
    "LOOPLANE_TRUSTED_PROXIES",
    os.environ.get("LOOPLANE_TRUSTED_PROXIES", "127.0.0.1, ::1" if _HTTPS else ""),
)
"""Whose X-Forwarded-For and X-Forwarded-Proto are believed; from everybody else they are taken away."""
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _HTTPS else None
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in ALLOWED_HOSTS] if _HTTPS else []
# The console listens on 127.0.0.1 over plain HTTP unless a proxy adds TLS, so what needs TLS is off until then.
SILENCED_SYSTEM_CHECKS = (
    [] if _HTTPS else ["security.W004", "security.W008", "security.W012", "security.W016", "security.W021"]
)
if _HTTPS:  # a browser then takes them from this very host alone, over TLS
    SESSION_COOKIE_NAME = "__Host-sessionid"
    CSRF_COOKIE_NAME = "__Host-csrftoken"
SESSION_ENGINE = "webui.accounts.sessions"
SESSION_COOKIE_AGE = 24 * 3600
"""Seconds without use after which a session ends."""
SESSION_LONGEST = timedelta(days=14)
"""After sign-in, however much it is used."""
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "webui.api.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000_000
DATA_UPLOAD_MAX_NUMBER_FIELDS = 4000
"""The launch form of the largest experiment has some 850 inputs."""

# --- static files, time, text --------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [SOURCE / "webui" / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 0
"""No build step and no hashed names: the browser asks again and gets 304, so an update shows at once."""
WHITENOISE_ALLOW_ALL_ORIGINS = False
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LANGUAGE_CODE = "en"

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "webui": {"level": "INFO"},
        "django.request": {"level": "ERROR"},
    },
}
