"""The database of an outbox as people name it: a URL of SQLAlchemy's, or the settings in the current directory."""

from typing import TYPE_CHECKING, Final

from streamkit.patterns.outbox.errors import OutboxError

if TYPE_CHECKING:
    from streamkit.patterns.outbox.database import Database

__all__ = ["database_at", "place_of", "refusal_text", "url_of_settings"]

_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
"""The blocking drivers, which are used whatever driver the URL names."""


def url_of_settings() -> str | None:
    """Return the URL of the database in the settings of the current directory; None if they have none.

    Raises:
        ConfigurationError: The settings cannot be read.
    """
    from streamkit.config.environment import Environment
    from streamkit.patterns.outbox.settings import OUTBOX, OutboxProperties

    return Environment.load(arguments=()).bind(OUTBOX, OutboxProperties).url


def database_at(url: str) -> "Database":
    """Return the database of a URL; nothing is connected yet.

    Raises:
        OutboxError: SQLAlchemy cannot read the URL, or the driver is not installed; the text has no password.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    from streamkit.patterns.outbox.database import Database

    try:
        parsed = make_url(url)
    except SQLAlchemyError as error:
        raise OutboxError(
            "the URL of the database is not one that SQLAlchemy reads: write it like postgresql://user@host/shop"
        ) from error
    try:
        driver = _DRIVERS.get(parsed.get_backend_name())
        parsed = parsed.set(drivername=parsed.get_backend_name() + (f"+{driver}" if driver else ""))
        return Database(create_engine(parsed))
    except (SQLAlchemyError, ImportError) as error:
        raise OutboxError(f"cannot use the database {parsed}: {error}") from error


def place_of(database: "Database") -> str:
    """Return where a database is, without user and password: `postgresql at db:5432, database shop`."""
    url = database.engine.url
    port = "" if url.port is None else f":{url.port}"
    host = f" at {url.host}{port}" if url.host else ""
    name = f", database {url.database}" if url.database else " in memory"
    return f"{url.get_backend_name()}{host}{name}"


def refusal_text(error: Exception) -> str:
    """Return what to say about an error of SQLAlchemy's: why the database refuses, and what to do if it has no tables.

    The text has neither the statement nor its values.
    """
    hint = "; `streamkit outbox schema` prints the statements that create it" if _lacks_table(error) else ""
    return f"the database refuses: {error.__cause__ or error.args[0]}{hint}"


def _lacks_table(error: Exception) -> bool:
    """Return whether the tables of the outbox do not exist."""
    said = str(error.__cause__)
    return any(each in said for each in ("no such table", "does not exist", "doesn't exist")) and "producer_" in said
