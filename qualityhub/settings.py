"""Django settings, from the environment alone; see ``docs/reference/settings.md``."""

from __future__ import annotations

from pathlib import Path

from qualityhub import __version__, env

PACKAGE = Path(__file__).resolve().parent
ENV = env.Reader()

QH_HOME = ENV.path(
    "QH_HOME",
    env.default_home(),
    "Data folder: blobs, unpacked environments, worlds.",
    shown="/var/lib/qualityhub for root, else the user's data folder",
)
QH_BLOBS = ENV.path_if_set(
    "QH_BLOBS",
    "Folder of the blob store: packages and evidence. All servers and workers of a hub share it.",
    shown="`QH_HOME`/blobs",
)
DEBUG = ENV.boolean(
    "QH_DEBUG", False, "Show tracebacks in the browser. Never where others can reach it."
)
QH_LOG_LEVEL = ENV.text(
    "QH_LOG_LEVEL",
    "info",
    "How much is logged to stderr.",
    choices=["debug", "info", "warning", "error"],
)
QH_PUBLIC_URL = ENV.url(
    "QH_PUBLIC_URL",
    "http://127.0.0.1:8000",
    "Where people reach the hub; links are made from it. With https, cookies need https.",
    schemes=["http", "https"],
).rstrip("/")
QH_BROKER_URL = ENV.url(
    "QH_BROKER_URL",
    "redis://127.0.0.1:6379/0",
    "Redis or Valkey. `qualityhub up` starts its own where this is unset.",
    schemes=["redis", "rediss", "redis+socket", "memory"],
)
QH_DATABASE_URL = ENV.url(
    "QH_DATABASE_URL",
    "postgresql:///qualityhub",
    "PostgreSQL; for a Unix socket `postgresql://user@/name?host=/folder`. "
    "`qualityhub up` starts its own where this is unset.",
    schemes=["postgresql", "postgres"],
)
QH_MAX_UPLOAD_BYTES = ENV.size(
    "QH_MAX_UPLOAD_BYTES", "64MiB", "Largest archive of an environment, as sent."
)
QH_MAX_ROWS_BYTES = ENV.size(
    "QH_MAX_ROWS_BYTES", "64MiB", "Largest decoded body of one rollouts request."
)
QH_EVIDENCE_BYTES = ENV.size(
    "QH_EVIDENCE_BYTES",
    "1MiB",
    "Kept of the outputs and collected files of one trial; of what is longer, the beginning and "
    "the end.",
)
QH_TRIALS_KEEP_DAYS = ENV.integer(
    "QH_TRIALS_KEEP_DAYS",
    90,
    "Results of trials and their evidence are kept so long at least; after that, what neither a "
    "finding nor one of the last inspections of a version refers to is removed. 0: kept for good.",
)
QH_TRIALS_KEEP_INSPECTIONS = ENV.integer(
    "QH_TRIALS_KEEP_INSPECTIONS",
    3,
    "Inspections of each version whose trials are kept however old they are.",
    low=1,
    high=1000,
)
QH_STORE_MAX_BYTES = ENV.size(
    "QH_STORE_MAX_BYTES",
    "0",
    "Size that images, layers and stored results below QH_HOME may have together; what was unused "
    "for longest goes first. 0: any.",
)
QH_SANDBOX = ENV.text(
    "QH_SANDBOX", "auto", "Which sandbox workers use.", choices=["auto", "bwrap", "container"]
)
QH_FORK_SERVER = ENV.text(
    "QH_FORK_SERVER",
    "on",
    "Whether trials that differ in input alone share what is loaded once; `off` starts every one "
    "anew. The command line reads it too.",
    choices=["on", "off"],
)
QH_LEASE_SECONDS = ENV.integer(
    "QH_LEASE_SECONDS",
    30,
    "A worker silent for so long loses its batch to another.",
    low=5,
    high=3600,
)
QH_DOMAIN_BATCHES = ENV.integer(
    "QH_DOMAIN_BATCHES",
    0,
    "Batches of one domain in work at once, unless an operator gave it a share; 0: no bound.",
)
QH_TEAM_BATCHES = ENV.integer(
    "QH_TEAM_BATCHES",
    0,
    "Batches of one team in work at once, unless an operator gave it a share; 0: no bound.",
)
QH_WORKER_LABELS = ENV.labels(
    "QH_WORKER_LABELS",
    "What this worker is beside what it finds out itself, e.g. `zone=a,disk=fast`; environments "
    "may ask for it.",
)
QH_WORKER_PATIENCE_S = ENV.integer(
    "QH_WORKER_PATIENCE_S",
    600,
    "When no worker that could do a batch was seen for so long, its inspection says what it "
    "waits for.",
    low=1,
    high=86400,
)
QH_AUDIT_HOUR = ENV.integer("QH_AUDIT_HOUR", 2, "Hour (UTC) of the nightly audit.", low=0, high=23)
QH_AUDIT_STALE_DAYS = ENV.integer(
    "QH_AUDIT_STALE_DAYS",
    7,
    "Inspections older than this are stale to the audit.",
    low=1,
    high=3650,
)
QH_BROKER_VISIBILITY_S = ENV.integer(
    "QH_BROKER_VISIBILITY_S",
    900,
    "Seconds until the broker gives an unacknowledged ticket to another worker.",
    low=10,
    high=86400,
)
QH_SIGN_IN_LINK_MINUTES = ENV.integer(
    "QH_SIGN_IN_LINK_MINUTES", 30, "How long a one-time sign-in link works.", low=1, high=1440
)

_secret = ENV.secret(
    "QH_SECRET_KEY",
    "Signs sessions; 40 characters or more. Servers need it unless QH_DEBUG=true.",
)
SECRET_KEY = _secret or env.ephemeral_secret()
QH_SECRET_KEY_IS_EPHEMERAL = _secret is None

ALLOWED_HOSTS = ENV.words(
    "QH_ALLOWED_HOSTS",
    ["localhost", "127.0.0.1", "[::1]"],
    "Host names the hub answers to.",
)
CSRF_TRUSTED_ORIGINS = [QH_PUBLIC_URL]
USE_X_FORWARDED_HOST = False
if ENV.boolean("QH_BEHIND_PROXY", False, "Trust X-Forwarded-Proto from the proxy in front."):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "qualityhub.platform",
    "qualityhub.accounts",
    "qualityhub.registry",
    "qualityhub.inspections",
    "qualityhub.gates",
    "qualityhub.notify",
    "qualityhub.api",
    "qualityhub.dashboard",
]
MIDDLEWARE = [
    "qualityhub.platform.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "qualityhub.platform.middleware.ContentSecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "qualityhub.urls"
WSGI_APPLICATION = "qualityhub.wsgi.application"

_checkout = PACKAGE.parent / "templates"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_checkout if _checkout.is_dir() else PACKAGE / "_templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASES = {
    "default": {
        **env.database_from_url(QH_DATABASE_URL),
        # A process keeps its connections; web threads, workers and beat together stay well below
        # PostgreSQL's default of 100.
        "CONN_MAX_AGE": ENV.integer(
            "QH_DATABASE_CONN_MAX_AGE_S", 300, "How long a connection is kept.", high=86400
        ),
        "CONN_HEALTH_CHECKS": True,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "accounts:sign-in"
LOGIN_REDIRECT_URL = "/"
_https = QH_PUBLIC_URL.startswith("https://")
SESSION_COOKIE_NAME = "qh_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = _https
CSRF_COOKIE_NAME = "qh_csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = _https
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 2**20
FILE_UPLOAD_MAX_MEMORY_SIZE = 2 * 2**20

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATICFILES_DIRS: list[str] = []
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "qualityhub.platform.staticfinder.PlotlyFinder",
]
# Files are served from where the packages hold them: no collect step, nothing to forget.
WHITENOISE_USE_FINDERS = True

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "qualityhub.accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["qualityhub.platform.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "qualityhub.platform.problems.exception_handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "QualityHub",
    "DESCRIPTION": (
        "Judges RL environments and checkpoints. Errors are RFC 9457 problem documents with a "
        "stable `code`; lists are paged by `limit` and the `next` link; `Idempotency-Key` makes a "
        "POST safe to repeat."
    ),
    "VERSION": f"1 ({__version__})",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "SORT_OPERATIONS": True,
    "ENUM_NAME_OVERRIDES": {"BaselineKindEnum": "qualityhub.gates.choices.BaselineKind"},
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "qualityhub.api.schema.add_problems",
    ],
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request": {"()": "qualityhub.platform.logs.RequestFilter"}},
    "formatters": {"line": {"()": "qualityhub.platform.logs.LineFormatter"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["request"],
        }
    },
    "root": {"handlers": ["stderr"], "level": QH_LOG_LEVEL.upper()},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "django": {"level": "INFO"},
    },
}
