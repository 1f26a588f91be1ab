"""The client for topics and groups; what it does is tested on a real Kafka, by `test_kafka_binder`."""

import asyncio
import threading

from kafka.errors import KafkaTimeoutError

from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.topics import Topics


class Admin:
    """Tells whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def given_up_while(fails: bool) -> Admin:
    """A client whose start is cancelled before it is connected, or fails to."""
    admin = Admin()

    async def main() -> None:
        has_begun, goes_on = threading.Event(), threading.Event()

        def connect() -> Admin:
            has_begun.set()
            assert goes_on.wait(60)
            if fails:
                raise KafkaTimeoutError("away")
            return admin

        starting = asyncio.create_task(Topics.connected(connect, KafkaBinderProperties()))
        await asyncio.to_thread(has_begun.wait)
        starting.cancel()
        goes_on.set()
        await asyncio.wait([starting])
        assert starting.cancelled()

    asyncio.run(main())
    return admin


def test_a_client_that_connects_while_the_start_is_given_up_is_closed() -> None:
    """A thread cannot be cancelled; and if it fails, nobody is told any more."""
    assert given_up_while(fails=False).is_closed
    assert not given_up_while(fails=True).is_closed
