"""Translates the driver's errors, once, at this boundary."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from threadhold.runner.errors import InvalidInput, Unavailable

# What a database that is away, going down, coming up or overloaded answers. The outcome of the call is unknown.
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
# What a database that has not been prepared answers.
_UNPREPARED = (
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
)


# What a database answers that cannot be used with this URL at all.
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedObjectError,
    asyncpg.CantChangeRuntimeParamError,
    asyncpg.ClientConfigurationError,
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises into errors of the Runner.

    Raises:
        Unavailable: when the database is away or has no schema yet.
        InvalidInput: when Postgres cannot store what was given (NUL, for example).
    """
    try:
        yield
    except _UNPREPARED as error:
        raise Unavailable("the database has no schema of this version; run `threadhold migrate`") from error
    except _REFUSED as error:
        raise Unavailable(f"the database refuses: {error}; check THREADHOLD_DATABASE_URL") from error
    except asyncpg.DataError as error:
        raise InvalidInput(f"this cannot be stored: {str(error)[:200]}", field="content") from error
    except _AWAY as error:
        who = f"the database does not answer ({type(error).__name__})"
        raise Unavailable(f"{who}; try again, or check THREADHOLD_DATABASE_URL and the server") from error
