"""The tables of the patterns as SQL and as operations of Alembic, for the commands that print them."""

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from sqlalchemy import Dialect, Index, Table

__all__ = ["DATABASES", "alembic_migration", "require_sqlalchemy", "schema_options", "sql_script"]

R = TypeVar("R")

DATABASES: Final = ("postgresql", "mariadb", "sqlite")
"""The databases that have a script of their own."""


def require_sqlalchemy(what: str) -> None:
    """Check that SQLAlchemy is installed.

    Args:
        what: What needs it, for the error.

    Raises:
        ClickException: It is not.
    """
    if importlib.util.find_spec("sqlalchemy") is None:
        raise click.ClickException(f"{what} needs SQLAlchemy: pip install 'streamkit-messaging[patterns]'")


def schema_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--database` and `--alembic` to a command, which gets the arguments `database` and `wants_alembic`."""

    @click.option(
        "--database",
        type=click.Choice(DATABASES),
        default=DATABASES[0],
        show_default=True,
        help="The database of the SQL script.",
    )
    @click.option("--alembic", "wants_alembic", is_flag=True, help="Print a revision of Alembic, for any database.")
    @functools.wraps(command)
    def run(*args: object, **options: object) -> R:
        return command(*args, **options)

    return run


def sql_script(database: str, tables: "Sequence[Table]") -> str:
    """Return the statements that create the tables, each with a semicolon.

    Args:
        database: One of `DATABASES`.
        tables: The tables.
    """
    from sqlalchemy.schema import CreateIndex, CreateTable

    dialect = _dialect(database)
    statements: list[str] = []
    for table in tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in _indexes(table)]
    lines = ("\n".join(line.rstrip() for line in each.replace("\t", "    ").splitlines()) for each in statements)
    return "".join(f"{each};\n\n" for each in lines).rstrip("\n") + "\n"


def alembic_migration(tables: "Sequence[Table]") -> str:
    """Return the functions `upgrade` and `downgrade` of a revision of Alembic, for any database."""
    from alembic.autogenerate import render_python_code
    from alembic.operations.ops import CreateIndexOp, CreateTableOp, DropIndexOp, DropTableOp, UpgradeOps

    up, down = UpgradeOps([]), UpgradeOps([])
    for table in tables:
        up.ops.append(CreateTableOp.from_table(table))
        up.ops += [CreateIndexOp.from_index(index) for index in _indexes(table)]
    for table in reversed(tables):
        down.ops += [DropIndexOp.from_index(index) for index in _indexes(table)]
        down.ops.append(DropTableOp.from_table(table))
    upgrade, downgrade = (render_python_code(ops) for ops in (up, down))
    head = ["import sqlalchemy as sa", "from alembic import op", "from sqlalchemy.dialects import mysql"]
    return "\n".join(head) + f"\n\n\ndef upgrade():\n    {upgrade}\n\n\ndef downgrade():\n    {downgrade}\n"


def _dialect(database: str) -> "Dialect":
    from sqlalchemy.dialects import mysql, postgresql, sqlite

    made: dict[str, type[Dialect]] = {
        "postgresql": postgresql.dialect,
        "mariadb": mysql.dialect,
        "sqlite": sqlite.dialect,
    }
    return made[database]()


def _indexes(table: "Table") -> "Sequence[Index]":
    return sorted(table.indexes, key=lambda index: str(index.name))
