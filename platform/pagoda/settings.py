"""Settings of the web tier, the worker and `manage.py`: read once from the environment.

Every variable is described in docs/settings.md (tests/platform/test_settings.py compares the two).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dj_database_url
from celery.schedules import crontab
from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _

from pagoda.environment import read_flag, read_number, read_text, read_words
from pagoda.secret_key import load_secret_key
from pagoda_inference.address import default_address

# --- places -----------------------------------------------------------------------------------------------------------

BASE_DIR = Path(__file__).resolve().parents[2]
_checkout = (BASE_DIR / "pyproject.toml").exists()
PAGODA_HOME = Path(read_text("PAGODA_HOME", str((BASE_DIR if _checkout else Path.cwd()) / "var"))).absolute()
PAGODA_HOST: str = read_text("PAGODA_HOST", "127.0.0.1")
PAGODA_PORT: int = read_number("PAGODA_PORT", 8000, minimum=1)
PAGODA_SITE_URL_IS_SET: bool = bool(read_text("PAGODA_SITE_URL"))
PAGODA_SITE_URL: str = read_text("PAGODA_SITE_URL", f"http://127.0.0.1:{PAGODA_PORT}").rstrip("/")
"""The address people type: links in invitations, the websocket's allowed origin, and whether cookies are secure."""

# --- the engines ------------------------------------------------------------------------------------------------------

PAGODA_ENGINES: list[str] = read_words("PAGODA_ENGINES") or [default_address(PAGODA_HOME)]
PAGODA_ENGINE_TOKEN: str | None = read_text("PAGODA_ENGINE_TOKEN") or None
PAGODA_MODEL: str = read_text("PAGODA_MODEL")
"""What `manage.py up` has the engine serve: a path, a hub id or ``echo``; empty is the engine's own default."""
PAGODA_METRICS_TOKEN: str = read_text("PAGODA_METRICS_TOKEN")
"""What a collector of /metrics sends as a bearer token; empty: only this machine may read them."""

# --- security ---------------------------------------------------------------------------------------------------------

DEBUG: bool = read_flag("PAGODA_DEBUG")
SECRET_KEY: str = read_text("PAGODA_SECRET_KEY") or load_secret_key(PAGODA_HOME)
_site = urlsplit(PAGODA_SITE_URL)
_https = _site.scheme == "https"
ALLOWED_HOSTS: list[str] = sorted(
    {"localhost", "127.0.0.1", "[::1]", _site.hostname or "localhost", *read_words("PAGODA_ALLOWED_HOSTS")}
)
CSRF_TRUSTED_ORIGINS: list[str] = [f"{_site.scheme}://{_site.netloc}"]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "pagoda_session"
CSRF_COOKIE_NAME = "pagoda_csrf"
SECURE_HSTS_SECONDS = read_number("PAGODA_HSTS_SECONDS", 0)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if read_flag("PAGODA_BEHIND_PROXY"):
    # Only where the proxy sets the header itself: a client could otherwise claim to be on https.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    ALLAUTH_TRUSTED_PROXY_COUNT = 1

# --- applications -----------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    # Before unfold: its dashboard replaces unfold's.
    "pagoda.pool",
    "unfold",
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    # Before allauth: its templates override allauth's.
    "pagoda.tenants",
    "allauth",
    "allauth.account",
    "django_celery_beat",
    "django_prometheus",
    "django_vite",
    # For the files of the API's documentation.
    "ninja",
    "pagoda.engines",
    "pagoda.assistants",
    "pagoda.usage",
    "pagoda.generations",
    "pagoda.chat",
    "pagoda.api",
    "pagoda.batches",
    "pagoda.operations",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "pagoda.static_files.StaticFilesMiddleware",
    "pagoda.content_security.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "pagoda.urls"
ASGI_APPLICATION = "pagoda.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# --- the database -----------------------------------------------------------------------------------------------------

DATABASE_URL: str = read_text("DATABASE_URL", f"sqlite:///{PAGODA_HOME / 'pagoda.sqlite3'}")
DATABASES: dict[str, Any] = {"default": dj_database_url.parse(DATABASE_URL, conn_max_age=0)}
_database = DATABASES["default"]
_database.setdefault("OPTIONS", {})
if "sqlite" in _database["ENGINE"]:
    # IMMEDIATE: a transaction that will write waits for the lock at its start, where `timeout` applies. A deferred one
    # would fail at once with "database is locked" when it tries to upgrade its read snapshot.
    _database["OPTIONS"] |= {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA mmap_size=134217728;",
    }
else:
    # Under ASGI persistent connections leak with every thread: the psycopg pool owns them, and CONN_MAX_AGE stays 0.
    _database["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": read_number("PAGODA_DATABASE_POOL", 16, minimum=1),
        "timeout": 10,
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Redis, or nothing ------------------------------------------------------------------------------------------------

REDIS_URL: str | None = read_text("REDIS_URL") or None
CHANNEL_LAYERS: dict[str, Any]
CACHES: dict[str, Any]
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any]
if REDIS_URL:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [REDIS_URL], "prefix": "pagoda"},
        }
    }
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
            "KEY_PREFIX": "pagoda",
        }
    }
    CELERY_BROKER_URL = REDIS_URL
    CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "pagoda:celery:", "visibility_timeout": 3600}
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    _broker = PAGODA_HOME / "broker"
    for _folder in ("queue", "control"):  # the transport makes neither
        (_broker / _folder).mkdir(parents=True, exist_ok=True)
    CELERY_BROKER_URL = "filesystem://"
    CELERY_BROKER_TRANSPORT = "pagoda.filesystem_broker:Transport"
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_broker / "queue"),
        "data_folder_out": str(_broker / "queue"),
        "control_folder": str(_broker / "control"),
        "polling_interval": 0.05,
    }

# --- background work --------------------------------------------------------------------------------------------------

CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "pagoda"
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONCURRENCY = read_number("PAGODA_WORKER_CONCURRENCY", 2, minimum=2)
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# One broker attempt per second for a minute at start, then the supervisor restarts the worker.
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# The filesystem broker has no event bus: `celery inspect` would poll a queue nobody reads.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = REDIS_URL is not None
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
# Written to the database by beat at its start; operators can then change the rows in the admin.
CELERY_BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "usage: roll up the hours": {"task": "usage.roll_up", "schedule": crontab(minute="5")},
    "generations: purge what was deleted": {"task": "generations.send_purges", "schedule": crontab(minute="*/5")},
    "api: forget old repeatable calls": {"task": "api.forget_old_calls", "schedule": crontab(minute="35")},
    "batches: carry out what waits": {"task": "batches.run", "schedule": 15.0, "options": {"expires": 15}},
    "batches: send webhooks": {"task": "batches.send_webhooks", "schedule": 15.0, "options": {"expires": 15}},
    "batches: delete files whose time is over": {"task": "batches.expire_files", "schedule": crontab(minute="*/10")},
    "batches: delete what was left behind": {"task": "batches.sweep", "schedule": crontab(hour="4", minute="10")},
    "chat: apply retention": {"task": "chat.apply_retention", "schedule": crontab(hour="3", minute="20")},
    "chat: title what was left untitled": {"task": "chat.title_untitled", "schedule": crontab(minute="*/10")},
}

# --- API --------------------------------------------------------------------------------------------------------------

PAGODA_API_KEEP_ALIVE_S: float = read_number("PAGODA_API_KEEP_ALIVE_S", 15, minimum=1)
"""Seconds without an event after which a stream of the API says that it is alive."""

# --- batches ----------------------------------------------------------------------------------------------------------

PAGODA_FILES: str = read_text("PAGODA_FILES")
"""Where files of the API lie; empty: in ``files`` below PAGODA_HOME."""
PAGODA_FILES_QUOTA_MIB: int = read_number("PAGODA_FILES_QUOTA_MIB", 10 * 1024)
"""Of a tenant's files together, where the admin has no other number for it; 0: no limit."""
PAGODA_FILES_RETENTION_DAYS: int = read_number("PAGODA_FILES_RETENTION_DAYS", 30)
"""How long any file is kept; 0: until it is deleted."""
PAGODA_BATCH_LINES_IN_FLIGHT: int = read_number("PAGODA_BATCH_LINES_IN_FLIGHT", 32, minimum=1)
PAGODA_BATCH_GRACE_S: int = read_number("PAGODA_BATCH_GRACE_S", 20)
"""How long a worker that is asked to end lets the lines in flight come to their end."""

PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES: bool = read_flag("PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES")
"""For development on one machine alone: webhooks may then lead to loopback and into private networks."""
if PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES and (REDIS_URL or "sqlite" not in _database["ENGINE"]):
    raise ImproperlyConfigured(
        "PAGODA_UNSAFE_WEBHOOKS_TO_PRIVATE_ADDRESSES is for development on one machine: it lets webhooks reach the "
        "private network of this server. Unset it, or unset DATABASE_URL and REDIS_URL."
    )

# --- people -----------------------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_ADAPTER = "pagoda.tenants.adapter.InvitationOnlyAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
# The invitation's link proves the address as well as a confirmation mail would.
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Pagoda] "
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "10/m/ip,5/5m/key", "reset_password": "20/m/ip,5/m/key"}
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False
PAGODA_INVITATION_DAYS: int = read_number("PAGODA_INVITATION_DAYS", 7, minimum=1)

# --- mail -------------------------------------------------------------------------------------------------------------

# Without a mail server nothing is sent: the inviter sees the link and passes it on.
PAGODA_SMTP_URL: str = read_text("PAGODA_SMTP_URL")
DEFAULT_FROM_EMAIL: str = read_text("PAGODA_MAIL_FROM", f"pagoda@{_site.hostname or 'localhost'}")
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
if PAGODA_SMTP_URL:
    _smtp = urlsplit(PAGODA_SMTP_URL)
    EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    EMAIL_HOST = _smtp.hostname or "localhost"
    EMAIL_PORT = _smtp.port or (465 if _smtp.scheme == "smtps" else 587)
    EMAIL_HOST_USER = unquote(_smtp.username or "")
    EMAIL_HOST_PASSWORD = unquote(_smtp.password or "")
    EMAIL_USE_SSL = _smtp.scheme == "smtps"
    EMAIL_USE_TLS = _smtp.scheme == "smtp+tls"
    EMAIL_TIMEOUT = 10

# --- languages and time -----------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("ko", "한국어")]
LOCALE_PATHS = [Path(__file__).resolve().parent / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = read_text("PAGODA_TIME_ZONE", "UTC")

# --- static files and the front end -----------------------------------------------------------------------------------

STATIC_URL = "/static/"
PAGODA_FRONTEND_DIST = Path(read_text("PAGODA_FRONTEND_DIST", str(BASE_DIR / "frontend" / "dist"))).absolute()
STATICFILES_DIRS = [PAGODA_FRONTEND_DIST] if PAGODA_FRONTEND_DIST.is_dir() else []
# Files are served from where they lie: nothing to collect before the first start, one step less to forget.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_ALLOW_ALL_ORIGINS = False
# Vite puts a hash of the content into the name.
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/assets/.+[-.][A-Za-z0-9_-]{8,}\.[a-z0-9]+$"
PAGODA_VITE_DEV: bool = read_flag("PAGODA_VITE_DEV")
DJANGO_VITE = {
    "default": {
        "dev_mode": PAGODA_VITE_DEV,
        "dev_server_port": 5173,
        "manifest_path": PAGODA_FRONTEND_DIST / "manifest.json",
    }
}

# --- the admin --------------------------------------------------------------------------------------------------------

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Pagoda",
    "SITE_HEADER": "Pagoda",
    "SITE_SUBHEADER": _("Operators"),
    "SITE_SYMBOL": "temple_buddhist",
    "SITE_URL": "/",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("pagoda/icon.svg")}],
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "pagoda.pool.dashboard.dashboard",
    "STYLES": [lambda request: static("pool/admin.css")],
    "COLORS": {
        "primary": {
            "50": "oklch(97% .015 180)",
            "100": "oklch(94% .035 180)",
            "200": "oklch(89% .065 180)",
            "300": "oklch(82% .095 180)",
            "400": "oklch(73% .115 180)",
            "500": "oklch(64% .115 180)",
            "600": "oklch(54% .100 180)",
            "700": "oklch(46% .084 180)",
            "800": "oklch(39% .068 180)",
            "900": "oklch(33% .055 180)",
            "950": "oklch(25% .045 180)",
        }
    },
    "SIDEBAR": {
        "show_search": True,
        "show_all_applications": False,
        "navigation": [
            {
                "title": _("Pool"),
                "items": [
                    {"title": _("Dashboard"), "icon": "dashboard", "link": reverse_lazy("admin:index")},
                    {"title": _("KV pool"), "icon": "memory", "link": reverse_lazy("pool_live")},
                    {"title": _("Quotas"), "icon": "tune", "link": reverse_lazy("admin:pool_quota_changelist")},
                    {
                        "title": _("Published prefixes"),
                        "icon": "campaign",
                        "link": reverse_lazy("admin:assistants_publishedprefix_changelist"),
                    },
                ],
            },
            {
                "title": _("People"),
                "separator": True,
                "items": [
                    {
                        "title": _("Tenants"),
                        "icon": "apartment",
                        "link": reverse_lazy("admin:tenants_tenant_changelist"),
                    },
                    {
                        "title": _("Assistants"),
                        "icon": "support_agent",
                        "link": reverse_lazy("admin:assistants_assistant_changelist"),
                    },
                    {"title": _("Users"), "icon": "person", "link": reverse_lazy("admin:tenants_user_changelist")},
                    {
                        "title": _("Invitations"),
                        "icon": "mail",
                        "link": reverse_lazy("admin:tenants_invitation_changelist"),
                    },
                    {"title": _("API keys"), "icon": "key", "link": reverse_lazy("admin:tenants_apikey_changelist")},
                    {
                        "title": _("Audit"),
                        "icon": "history",
                        "link": reverse_lazy("admin:tenants_auditentry_changelist"),
                    },
                ],
            },
            {
                "title": _("Work"),
                "separator": True,
                "items": [
                    {
                        "title": _("Usage"),
                        "icon": "bar_chart",
                        "link": reverse_lazy("admin:usage_usagehour_changelist"),
                    },
                    {
                        "title": _("Batches"),
                        "icon": "stacks",
                        "link": reverse_lazy("admin:batches_batch_changelist"),
                    },
                    {
                        "title": _("Webhooks"),
                        "icon": "webhook",
                        "link": reverse_lazy("admin:batches_webhook_changelist"),
                    },
                    {
                        "title": _("Webhook deliveries"),
                        "icon": "outbox",
                        "link": reverse_lazy("admin:batches_webhookdelivery_changelist"),
                    },
                    {
                        "title": _("Scheduled tasks"),
                        "icon": "schedule",
                        "link": reverse_lazy("admin:django_celery_beat_periodictask_changelist"),
                    },
                ],
            },
        ],
    },
}

# --- logging ----------------------------------------------------------------------------------------------------------

# Never the text of a message, a key or a token: loggers are given ids and numbers.
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {"()": "pagoda.log_format.JsonFormatter"},
        "text": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
    },
    "filters": {"refused": {"()": "pagoda.log_format.RefusedWithoutTraceback"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": read_text("PAGODA_LOG_FORMAT", "text"),
            "filters": ["refused"],
        },
    },
    "root": {"handlers": ["console"], "level": read_text("PAGODA_LOG_LEVEL", "INFO").upper()},
    "loggers": {"django.server": {"handlers": ["console"], "propagate": False}},
}
