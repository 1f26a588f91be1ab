"""A program that handles one message in a listener with a database, and is killed at each point of the way.

Each run is a fork of this process, on a database file and on virtual time. The message is delivered again, as a broker
would, until a run settles it. Prints, for each point, how many runs there were, and the effects and results that are
left.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, event, insert, select
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

import binders.inmemory.binder  # noqa: F401
import streamkit.patterns.inbox.memory_marks
import streamkit.running.runtime  # imported before the forks, once for all of them
import streamkit.testing.harness  # noqa: F401
from streamkit import Message, MessageHeaders, StreamApplication
from streamkit.events import message_sent, message_settled
from streamkit.patterns.inbox import InboxSession, SqlMarks, inbox_table

METADATA: Final = MetaData()
MARKS: Final = inbox_table(METADATA)
EFFECTS: Final = Table("effects", METADATA, Column("order_id", Integer))
POINTS: Final = (
    "before the effect",
    "after the effect",
    "after the result was sent",
    "before the commit",
    "after the commit",
    "before the acknowledgment",
    "nowhere",
)


def run(engine: Engine, results: Path, point: str) -> None:
    """Handle the message; end the process at the point."""

    def reached(this: str) -> None:
        if this == point:
            os._exit(9)

    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.bindings.orders.group": "g",
            "spring.cloud.stream.bindings.receipts.destination": "receipts",
            "streamkit.inbox.store": "marks",
        },
    )
    app.register("marks", SqlMarks(sessionmaker(engine), MARKS))

    @app.stream_listener("orders", idempotent_by="payload.id")
    @app.send_to("receipts")
    def book(order: dict[str, int], session: Annotated[Session, InboxSession()]) -> str:
        reached("before the effect")
        session.execute(insert(EFFECTS).values(order_id=order["id"]))
        reached("after the effect")
        return "booked"

    def sent(sender: object, *, binding: str, message: Message[bytes]) -> None:
        if binding == "receipts":
            with results.open("a") as file:
                file.write(f"{message.headers.id}\n")
            reached("after the result was sent")

    def settled(sender: object, **_: object) -> None:
        reached("before the acknowledgment")

    def committing(connection: object) -> None:
        reached("before the commit")

    def committed(session: object) -> None:
        reached("after the commit")

    event.listen(engine, "commit", committing)
    event.listen(Session, "after_commit", committed)
    with message_sent.connected_to(sent), message_settled.connected_to(settled), app.test() as test:
        test.input("orders").send(Message({"id": 7}, MessageHeaders({"id": "one"})))
        test.settle()


def killed_at(directory: Path, point: str) -> str:
    """Return what is left after a kill at the point, and the deliveries that follow."""
    engine = create_engine(f"sqlite:///{directory / point.replace(' ', '-')}.db", poolclass=NullPool)
    METADATA.create_all(engine)
    results = directory / f"{point}.txt"
    outcomes = [_forked(lambda: run(engine, results, point)), _forked(lambda: run(engine, results, "nowhere"))]
    with engine.connect() as connection:
        effects = len(connection.execute(select(EFFECTS)).all())
        marks = len(connection.execute(select(MARKS)).all())
    ids = results.read_text().split() if results.exists() else []
    return f"{point}: {outcomes} effects={effects} marks={marks} results={len(ids)} ids={len(set(ids))}"


def _forked(function: Callable[[], None]) -> int:
    """Run a function in a fork; return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def import_everything() -> None:
    """Import in this process what the forks need, without a thread."""
    types = StreamApplication(config_location="optional:/none").plugins.binder_types()
    for name in types.names:
        types.extended_models(name)
        types.settings_models(name)


if __name__ == "__main__":
    import_everything()
    for each in POINTS:
        print(killed_at(Path(sys.argv[1]), each), flush=True)
