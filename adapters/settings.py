"""The settings of a process. The environment is read here and nowhere else."""

import re
from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SCHEMA_PATTERN: Final = r"^[a-z_][a-z0-9_]{0,40}$"
PREFIX_PATTERN: Final = r"^[a-z0-9_:-]{1,40}$"
ENVIRONMENT_PATTERN: Final = r"^[a-z][a-z0-9_-]{0,31}$"
LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# Neither `*` nor `null`, which is any page that a browser has no name for. Apps have schemes of their own.
_HOST: Final = r"([a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])"
_ORIGIN: Final = re.compile(rf"[a-z][a-z0-9+.-]*://{_HOST}(:[1-9][0-9]{{0,4}})?")
_PORTS_LEFT_OUT: Final = (("https://", ":443"), ("http://", ":80"))
# RFC 7518 asks for as many bytes as the hash has; a shorter secret could be guessed from any token.
JWT_SECRET_BYTES_MIN: Final = 32


class Settings(BaseSettings):
    """What every process of one stack must agree on, and what is its own.

    Each field is read from the environment as `THREADHOLD_<NAME>`.
    """

    model_config = SettingsConfigDict(
        env_prefix="THREADHOLD_",
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        # What was given may hold a password.
        hide_input_in_errors=True,
    )

    database_url: str | None = Field(None, description="Postgres; without it `dev` starts an embedded one.")
    redis_url: str | None = Field(
        None, description="Redis or Valkey; without it `dev` starts an embedded one."
    )
    live_redis_urls: str | None = Field(
        None,
        description="Redis or Valkey servers for live frames, separated by commas, in the same order for every "
        "process; threads are spread over them. Without it they live beside the rest.",
    )
    live_frames: Annotated[int, Field(ge=100, le=1_000_000)] = 2000
    live_ttl: timedelta = Field(
        timedelta(minutes=10), description="How long live frames of a thread are kept after the last one."
    )
    db_schema: str = Field(
        "threadhold", pattern=SCHEMA_PATTERN, description="Two stacks may share a database."
    )
    prefix: str = Field(
        "th:",
        pattern=PREFIX_PATTERN,
        description="Two stacks may share a Redis.",
    )
    pool_size: Annotated[int, Field(ge=2, le=100)] = 10
    claim_ttl: timedelta = Field(
        timedelta(seconds=15), description="How long a silent worker keeps its threads."
    )
    renew_every: timedelta = Field(
        timedelta(seconds=1.5), description="A stop without Redis is seen this late."
    )
    trust_margin: timedelta = Field(
        timedelta(seconds=2), description="How long it may take to stop an agent."
    )
    sweep_every: timedelta = Field(
        timedelta(seconds=1), description="How often lapsed claims are looked for."
    )
    capacity: Annotated[int, Field(ge=1, le=10_000)] = 50
    grace: timedelta = Field(
        timedelta(seconds=20), description="How long a worker that is told to end waits for runs."
    )
    environment: str = Field(
        "development",
        pattern=ENVIRONMENT_PATTERN,
        description="Where this is, for the policies of agents; in `production` nobody approves for themselves.",
    )
    url: str = Field(
        "http://127.0.0.1:8000", description="Where clients such as `chat` and `tail` find the API."
    )
    tokens_file: str | None = Field(None, description="TOML: who has which token, by its SHA-256.")
    jwt_secret: SecretStr | None = Field(None, description="Signs tokens with HS256; at least 32 bytes.")
    jwt_jwks_url: str | None = Field(None, description="Where the issuer of tokens publishes its keys.")
    jwt_issuer: str | None = Field(None, description="What `iss` has to be.")
    jwt_audience: str | None = Field(None, description="What `aud` has to be.")
    jwt_workspace_claim: str = Field("workspace", description="What a token calls the workspace.")
    jwt_roles_claim: str = Field("roles", description="What a token calls the roles.")
    token: SecretStr | None = Field(
        None, description="What clients such as `ps` and `chat` show to a server."
    )
    open_access: bool = Field(
        False, description="Whoever reaches a server without identity, from wherever, may do everything."
    )
    origins: str | None = Field(
        None, description="Web origins whose pages may call this server from elsewhere, separated by commas."
    )
    messages_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="How many messages a principal may send through one replica; a minute's worth at once.",
    )
    open_watches: Annotated[int, Field(ge=1)] | None = Field(
        None, description="How many threads a principal may watch at once through one replica."
    )
    open_sockets: Annotated[int, Field(ge=1)] | None = Field(
        None, description="How many WebSockets a principal may have open at one replica."
    )
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        None,
        description="Where this process shows its metrics; without it an API replica does at `/metrics`.",
    )
    metrics_host: str = Field(
        "127.0.0.1", description="The address of that port; nobody is asked who they are."
    )
    state: str = Field(".threadhold", description="Where the embedded servers keep their data.")

    @field_validator("database_url")
    @classmethod
    def _postgres(cls, value: str | None) -> str | None:
        return _checked_url(value, "postgresql", "postgres")

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str | None) -> str | None:
        return _checked_url(value, "redis", "rediss", "unix")

    @field_validator("live_redis_urls")
    @classmethod
    def _nodes(cls, value: str | None) -> str | None:
        for url in _listed(value):
            _checked_url(url, "redis", "rediss", "unix")
        return value

    @field_validator("origins")
    @classmethod
    def _exact(cls, value: str | None) -> str | None:
        for number, origin in enumerate(_listed(value), start=1):
            if _ORIGIN.fullmatch(origin) is None or any(
                origin.startswith(scheme) and origin.endswith(port) for scheme, port in _PORTS_LEFT_OUT
            ):
                raise ValueError(
                    f"number {number} is not an origin as browsers send it, such as https://chat.example.com: small "
                    "letters, no path, no port that the scheme has anyway; each is named, there is no *"
                )
        return value

    @field_validator("jwt_jwks_url")
    @classmethod
    def _keys(cls, value: str | None) -> str | None:
        url = _checked_url(value, "https", "http")
        if url is not None and urlsplit(url).scheme == "http" and urlsplit(url).hostname not in LOCAL_HOSTS:
            raise ValueError("keys that came over plain http could be anybody's: https is needed here")
        return url

    @field_validator("jwt_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < JWT_SECRET_BYTES_MIN:
            raise ValueError(f"at least {JWT_SECRET_BYTES_MIN} bytes are needed, from `openssl rand -hex 32`")
        return value

    @field_validator(
        "claim_ttl", "renew_every", "trust_margin", "sweep_every", "grace", "live_ttl", mode="before"
    )
    @classmethod
    def _seconds(cls, value: object) -> object:
        """Take plain seconds: the environment holds text, which pydantic would only read as `PT15S` or `0:00:15`."""
        if not isinstance(value, str):
            return value
        try:
            return timedelta(seconds=float(value))
        except (ValueError, OverflowError):
            return value

    @property
    def shown_token(self) -> str | None:
        """The token that clients show, in the clear."""
        return None if self.token is None else self.token.get_secret_value()

    @property
    def redis_prefix(self) -> str:
        """The start of all names in Redis: stacks of two schemas never meet there, even if nobody thought of it."""
        return f"{self.prefix}{self.db_schema}:"

    @property
    def live_nodes(self) -> tuple[str, ...]:
        """The URLs of the servers for live frames, if they have servers of their own."""
        return _listed(self.live_redis_urls)

    @property
    def allowed_origins(self) -> frozenset[str]:
        """The web origins whose pages may call from elsewhere."""
        return frozenset(_listed(self.origins))

    @model_validator(mode="after")
    def _tokens_fit(self) -> "Settings":
        if self.jwt_secret is not None and self.jwt_jwks_url is not None:
            raise ValueError("set either jwt_secret or jwt_jwks_url: tokens have one kind of signature")
        # The keys of an identity provider sign tokens for all its customers and their services.
        if self.jwt_jwks_url is not None and None in (self.jwt_issuer, self.jwt_audience):
            raise ValueError("jwt_jwks_url needs jwt_issuer and jwt_audience, or tokens for others would do")
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> "Settings":
        if self.live_ttl < timedelta(seconds=1):
            raise ValueError("live_ttl must be at least a second")
        if min(self.trust_margin, self.sweep_every) <= timedelta() or self.grace < timedelta():
            raise ValueError("trust_margin and sweep_every must be positive, grace not negative")
        if not timedelta() < self.renew_every < self.claim_ttl - self.trust_margin:
            raise ValueError("renew_every must be positive and shorter than claim_ttl minus trust_margin")
        return self


def _listed(text: str | None) -> tuple[str, ...]:
    """Return what stands between commas."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _checked_url(url: str | None, *schemes: str) -> str | None:
    """Return a URL that its driver can read; empty means none.

    Raises:
        ValueError: if it is not one; the text never holds the URL, since that may hold a password.
    """
    if not url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("the port of this URL is not a number from 1 to 65535") from None
    if parts.scheme not in schemes or port == 0:
        raise ValueError(f"a URL like {schemes[0]}://user:password@host:port/name is needed here")
    return url
