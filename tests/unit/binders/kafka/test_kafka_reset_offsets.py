"""Where partitions begin with reset-offsets=true."""

import asyncio

from kafka import TopicPartition

from binders.kafka.fetching import ConsumerClient, FetchThread, Subscription

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Consumer:
    """Notes which partitions it is to read from their beginning."""

    def __init__(self) -> None:
        self.mine: set[TopicPartition] = set()
        self.rewound: list[TopicPartition] = []

    def assignment(self) -> set[TopicPartition]:
        return self.mine

    def seek_to_beginning(self, *keys: TopicPartition) -> None:
        self.rewound += keys


def test_a_partition_is_reset_once_and_not_whenever_it_comes_back() -> None:
    """As with Spring's binder; else members that come and go would have everything handled again."""

    async def main() -> list[TopicPartition]:
        client = ConsumerClient({"auto_offset_reset": "earliest"})
        subscription = Subscription("orders", resets=True)
        thread = FetchThread(
            "in",
            client,
            subscription,
            lambda batches: None,
            lambda partition: None,
            recall=lambda partition: None,
        )
        consumer = Consumer()
        for assigned in ({ONE}, {ONE, TWO}, {TWO}, {ONE, TWO}):
            consumer.mine = assigned
            thread.assigned(consumer, assigned)
        return consumer.rewound

    assert asyncio.run(main()) == [ONE, TWO]
