"""The settings of a process. The environment is read here and nowhere else."""

from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SCHEMA_PATTERN: Final = r"^[a-z_][a-z0-9_]{0,40}$"
PREFIX_PATTERN: Final = r"^[a-z0-9_:-]{1,40}$"


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
    db_schema: str = Field(
        "threadhold", pattern=SCHEMA_PATTERN, description="Two stacks may share a database."
    )
    prefix: str = Field("th:", pattern=PREFIX_PATTERN, description="Two stacks may share a Redis.")
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
    url: str = Field(
        "http://127.0.0.1:8000", description="Where clients such as `chat` and `tail` find the API."
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

    @field_validator("claim_ttl", "renew_every", "trust_margin", "sweep_every", "grace", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        """Take plain seconds: the environment holds text, which pydantic would only read as `PT15S` or `0:00:15`."""
        if not isinstance(value, str):
            return value
        try:
            return timedelta(seconds=float(value))
        except (ValueError, OverflowError):
            return value

    @model_validator(mode="after")
    def _times_fit(self) -> "Settings":
        if min(self.trust_margin, self.sweep_every) <= timedelta() or self.grace < timedelta():
            raise ValueError("trust_margin and sweep_every must be positive, grace not negative")
        if not timedelta() < self.renew_every < self.claim_ttl - self.trust_margin:
            raise ValueError("renew_every must be positive and shorter than claim_ttl minus trust_margin")
        return self


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
