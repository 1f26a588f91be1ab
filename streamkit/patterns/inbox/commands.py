"""`streamkit inbox`: the table of idempotent listeners."""

import click

from streamkit.patterns.inbox.marks import INBOX_TABLE
from streamkit.patterns.table_schema import alembic_migration, require_sqlalchemy, schema_options, sql_script

__all__ = ["inbox"]


@click.group()
def inbox() -> None:
    """Print the table in which idempotent listeners keep their marks."""
    require_sqlalchemy("the table of the inbox")


@inbox.command()
@click.option("--table", default=INBOX_TABLE, show_default=True, help="The table's name.")
@schema_options
def schema(*, database: str, table: str, wants_alembic: bool) -> None:
    """Print the statements that create the table of a SqlMarks or a DjangoMarks."""
    from sqlalchemy import MetaData

    from streamkit.patterns.inbox.sql_marks import inbox_table

    tables = [inbox_table(MetaData(), table)]
    click.echo(alembic_migration(tables) if wants_alembic else sql_script(database, tables), nl=False)
