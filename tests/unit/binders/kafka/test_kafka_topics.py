"""The admin client for topics and groups; its requests are tested on a real Kafka by `test_kafka_binder`."""

import asyncio
import threading

from kafka.errors import KafkaTimeoutError

from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.topics import Topics


class Admin:
    """An admin client that records whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def given_up_while(fails: bool) -> Admin:
    """Cancel the start of a client before it has connected or failed; return the client."""
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


def test_admin_client_of_a_cancelled_start_is_closed() -> None:
    """A thread cannot be cancelled; an error of it is ignored."""
    assert given_up_while(fails=False).is_closed
    assert not given_up_while(fails=True).is_closed
