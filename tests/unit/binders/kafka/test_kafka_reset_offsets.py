"""The start of partitions with reset-offsets=true."""

import asyncio

from kafka import TopicPartition

from binders.kafka.fetching import ConsumerClient, FetchThread, Subscription

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Consumer:
    """A consumer that records which partitions are read from their beginning."""

    def __init__(self) -> None:
        self.mine: set[TopicPartition] = set()
        self.rewound: list[TopicPartition] = []

    def assignment(self) -> set[TopicPartition]:
        return self.mine

    def seek_to_beginning(self, *keys: TopicPartition) -> None:
        self.rewound += keys


def test_partition_is_reset_only_at_its_first_assignment() -> None:
    """As in Spring's binder; otherwise each rebalance would deliver everything again."""

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
