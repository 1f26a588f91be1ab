"""Sequences of valid requests of several clients to one broker, restarts, kills and jumps of time.

Each rule sends what a client may send, and compares the answer with the `Model`. What every answer and every step
must fulfil is looked at in `Stage`: one answer with a known code, no exception in a handler, no step over 50 ms.
"""

import asyncio

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from tests.state_campaign.administration import Administration
from tests.state_campaign.conversation import clients, step
from tests.state_campaign.membership import Membership
from tests.state_campaign.pulling import Pulling
from tests.state_campaign.sending import Sending

__all__ = ["BrokerMachine"]


class BrokerMachine(Sending, Pulling, Membership, Administration):
    """One broker and its clients, beside a model."""

    @initialize(flush=st.sampled_from(["ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"]))
    def start(self, flush: str) -> None:
        """Start the broker, with two topics."""
        self.open(flush)
        for topic, queues in (("orders", 1), ("bills", 3)):
            self.make_topic(0, topic, queues, 6)

    @step(client=clients, abruptly=st.booleans())
    def disconnect(self, *, client: int, abruptly: bool) -> None:
        """A client goes, with whatever it waits for, and comes back with its next request."""
        self.run(self.stage.disconnect(client, abruptly=abruptly))

    @step(seconds=st.sampled_from([0.1, 1.0, 10.0, 61.0, 200.0, 1000.0, 4000.0]))
    def wait(self, *, seconds: float) -> None:
        """Time passes; messages are kept for an hour."""
        self.run(asyncio.sleep(seconds))
        self.look_at_held_pulls()

    @step(is_killed=st.booleans())
    def restart(self, *, is_killed: bool) -> None:
        """The broker ends, in order or not, and starts again with the files that it left."""
        self.finish()
        self.guarded(self.stage.kill if is_killed else self.stage.restart)
        self.held.clear()
        if is_killed:
            self.model.broker_killed()
        for (group, topic, queue_id), offset in self.model.committed.items():
            end = self.stage.store.max_offset(topic, queue_id)
            self.model.committed[group, topic, queue_id] = min(offset, end)
        self.look_at_queues()

    @step()
    def audit(self) -> None:
        """All queues are read."""
        self.look_at_queues()

    @step()
    def everybody_leaves(self) -> None:
        """All clients go, and nothing of theirs stays in the tables."""
        self.look_at_tables()
