"""The tables as SQL, and as operations of Alembic."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Dialect, Index, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES

__all__ = ["DIALECTS", "alembic_migration", "sql_script", "tables"]

DIALECTS: Final[dict[str, type[Dialect]]] = {
    "postgresql": postgresql.dialect,
    "mariadb": mysql.dialect,
    "sqlite": sqlite.dialect,
}
"""The databases that have a script of their own."""

_SIDES: Final = {"producer": PRODUCER_TABLES, "consumer": CONSUMER_TABLES}


def tables(side: str | None = None) -> Sequence[Table]:
    """Return the tables of the `producer`, of the `consumer`, or of both."""
    sides = _SIDES.values() if side is None else [_SIDES[side]]
    return [table for each in sides for table in each]


def sql_script(dialect: str, side: str | None = None) -> str:
    """Return the statements that create the tables, each with a semicolon."""
    made = DIALECTS[dialect]()
    statements: list[str] = []
    for table in tables(side):
        statements.append(str(CreateTable(table).compile(dialect=made)).strip())
        statements += [str(CreateIndex(index).compile(dialect=made)) for index in _indexes(table)]
    lines = ("\n".join(line.rstrip() for line in each.replace("\t", "    ").splitlines()) for each in statements)
    return "".join(f"{each};\n\n" for each in lines).rstrip("\n") + "\n"


def alembic_migration(side: str | None = None) -> str:
    """Return the functions `upgrade` and `downgrade` of a revision of Alembic, for any database."""
    from alembic.autogenerate import render_python_code
    from alembic.operations.ops import CreateIndexOp, CreateTableOp, DropIndexOp, DropTableOp, UpgradeOps

    up, down = UpgradeOps([]), UpgradeOps([])
    for table in tables(side):
        up.ops.append(CreateTableOp.from_table(table))
        up.ops += [CreateIndexOp.from_index(index) for index in _indexes(table)]
    for table in reversed(tables(side)):
        down.ops += [DropIndexOp.from_index(index) for index in _indexes(table)]
        down.ops.append(DropTableOp.from_table(table))
    upgrade, downgrade = (render_python_code(ops) for ops in (up, down))
    head = ["import sqlalchemy as sa", "from alembic import op", "from sqlalchemy.dialects import mysql"]
    return "\n".join(head) + f"\n\n\ndef upgrade():\n    {upgrade}\n\n\ndef downgrade():\n    {downgrade}\n"


def _indexes(table: Table) -> Sequence[Index]:
    return sorted(table.indexes, key=lambda index: str(index.name))
