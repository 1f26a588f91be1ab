"""What tools ask brokers and name servers."""

import asyncio

from hypothesis import strategies as st

from rocket_remoting.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from tests.state_campaign.conversation import BROKER, OK, Conversation, clients, groups, step, topics
from tests.state_campaign.listings import BROKER_LISTINGS, NAME_SERVER_LISTINGS
from tests.state_campaign.stage import CLIENTS, RESERVED_SECONDS

__all__ = ["Administration"]

CLEANING = (Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG, Code.CLEAN_UNUSED_TOPIC)
SETTINGS = [
    "autoCreateSubscriptionGroup=true", "autoCreateTopicEnable=false", "autoCreateTopicEnable=true",
    "channelExpiredTimeout=60000", "cleanResourceInterval=1000", "compressedRegister=true", "defaultQueryMaxNum=64",
    "defaultTopicQueueNums=3", "deleteWhen=00;12;23", "filterSupportRetry=true", "flushConsumerOffsetInterval=1000",
    "flushDelayOffsetInterval=1000", "longPollingEnable=false", "longPollingEnable=true", "maxMessageSize=1",
    "maxTransferBytesOnMessageInMemory=1000", "maxTransferCountOnMessageInMemory=3", "noSuchKey=1",
    "notifyConsumerIdsChangedEnable=false", "refuseDifferentSubscriptions=true", "regionId=elsewhere",
    "shortPollingTimeMills=50", "traceOn=false", "transactionCheckInterval=1000", "transactionTimeOut=0",
    "useServerSideResetOffset=false", "useServerSideResetOffset=true",
]  # fmt: skip
"""What tools may set, and two lines that are refused."""


class Administration(Conversation):
    """What people do with tools, and foreign brokers at the name server."""

    @step(
        client=clients,
        codes=st.lists(st.sampled_from(sorted(BROKER_LISTINGS)), min_size=1, max_size=6),
        topic=topics,
        group=groups,
        number=st.integers(0, 5),
        waits=st.booleans(),
    )
    def list_at_the_broker(
        self, *, client: int, codes: list[Code], topic: str, group: str, number: int, waits: bool
    ) -> None:
        """Several at once; with ``waits`` false the next rules' requests come while these are handled."""
        for index, code in enumerate(codes):
            self.begin((client + index) % CLIENTS, code, BROKER_LISTINGS[code](topic, group, number))
        if waits:
            self.finish()

    @step(
        client=clients,
        code=st.sampled_from(sorted(NAME_SERVER_LISTINGS)),
        topic=topics,
        number=st.integers(0, 5),
    )
    def list_at_the_name_server(self, *, client: int, code: Code, topic: str, number: int) -> None:
        """One at a time."""
        self.ask(client, code, NAME_SERVER_LISTINGS[code](topic, "", number), at_broker=False)

    @step(client=clients, entries=st.lists(st.sampled_from(SETTINGS), min_size=1, max_size=3))
    def update_settings(self, *, client: int, entries: list[str]) -> None:
        """Change the broker's settings; whoever may do that is for the broker to say."""
        self.ask(client, Code.UPDATE_BROKER_CONFIG, None, "\n".join(entries).encode())

    @step(client=clients, code=st.sampled_from(CLEANING), seconds=st.sampled_from([0, 0, RESERVED_SECONDS + 1]))
    def clean(self, *, client: int, code: Code, seconds: int) -> None:
        """Have old messages deleted, and queues of topics that are no more; some time later."""
        self.run(asyncio.sleep(seconds))
        self.ask_ok(client, code)
        if code == Code.CLEAN_UNUSED_TOPIC:
            self.model.expected = [e for e in self.model.expected if e.queue[0] in self.model.topics]

    @step(
        client=clients,
        name=st.sampled_from(["foreign", "other"]),
        broker_id=st.integers(0, 2),
        number=st.sampled_from([0, 1, 200]),
        gone=st.booleans(),
    )
    def register_broker(self, *, client: int, name: str, broker_id: int, number: int, gone: bool) -> None:
        """Register a foreign broker, or unregister it."""
        address = f"10.0.0.{broker_id}:10911"
        if gone:
            self.ask_ok(
                client,
                Code.UNREGISTER_BROKER,
                UnRegisterBrokerRequestHeader(
                    broker_name=name, broker_addr=address, cluster_name="C", broker_id=broker_id
                ),
                at_broker=False,
            )
            return
        configs = {f"{name}-{n}": TopicConfig(topic_name=f"{name}-{n}") for n in range(number)}
        version = DataVersion(timestamp=self.stage.now_ms, counter=self.stage.now_ms)
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table=configs, data_version=version)
        )
        header = RegisterBrokerRequestHeader(
            broker_name=name, broker_addr=address, cluster_name="C", ha_server_addr="", broker_id=broker_id
        )
        self.ask(client, Code.REGISTER_BROKER, header, encode_body(body), at_broker=False)

    @step(client=clients, name=st.sampled_from(["foreign", BROKER]), taken=st.booleans())
    def change_write_permission(self, *, client: int, name: str, taken: bool) -> None:
        """Take the write permission from a broker's routes, or give it back."""
        code = Code.WIPE_WRITE_PERM_OF_BROKER if taken else Code.ADD_WRITE_PERM_OF_BROKER
        self.ask(client, code, WipeWritePermOfBrokerRequestHeader(broker_name=name), at_broker=False)

    @step(
        client=clients,
        namespace=st.sampled_from(["N", "ORDER_TOPIC_CONFIG"]),
        key=topics,
        value=st.sampled_from([None, "broker-a:1", "x" * 1000]),
    )
    def configure(self, *, client: int, namespace: str, key: str, value: str | None) -> None:
        """Set a value of the key-value configuration, or delete it where ``value`` is None."""
        if value is None:
            deleted = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
            self.ask_ok(client, Code.DELETE_KV_CONFIG, deleted, at_broker=False)
            self.model.values.pop((namespace, key), None)
        else:
            put = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
            if self.ask(client, Code.PUT_KV_CONFIG, put, at_broker=False).code == OK:
                self.model.values[namespace, key] = value
        answer = self.ask(
            client,
            Code.GET_KV_CONFIG,
            GetKVConfigRequestHeader(namespace=namespace, key=key),
            at_broker=False,
        )
        found = answer.header(GetKVConfigResponseHeader).value if answer.code == OK else None
        self.require(
            found == self.model.values.get((namespace, key)),
            "key-value configuration",
            f"{namespace} {key}: {found}",
        )
