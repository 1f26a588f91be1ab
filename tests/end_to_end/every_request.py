"""Samples of every request of the broker, about the topic `orders` and the group `kitchen`."""

import msgspec

from rocket_remoting.wire import headers
from rocket_remoting.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    CreateTopicListRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.message import MessageQueue

__all__ = ["BODIES", "of_every_header"]

KITCHEN = ConsumerData(
    group_name="kitchen",
    consume_type=ConsumeType.CONSUME_PASSIVELY,
    message_model=MessageModel.CLUSTERING,
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    subscription_data_set=[SubscriptionData(topic="orders"), SubscriptionData(topic="%RETRY%kitchen")],
)
GROUP = SubscriptionGroupConfig(group_name="kitchen")
TOPICS = CreateTopicListRequestBody(topic_config_list=[TopicConfig(topic_name="orders")])
LOCKED = LockBatchRequestBody(consumer_group="kitchen", client_id="c", mq_set={MessageQueue("orders", "broker-a", 0)})
BODIES: dict[int, bytes] = {
    Code.HEART_BEAT: encode_body(HeartbeatData(client_id="c", consumer_data_set=[KITCHEN], producer_data_set=[])),
    Code.LOCK_BATCH_MQ: encode_body(LOCKED),
    Code.UNLOCK_BATCH_MQ: encode_body(LOCKED),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: encode_body(TOPICS),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: encode_body(GROUP),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: encode_body(SubscriptionGroupList(group_config_list=[GROUP])),
}
"""The bodies of requests that have one."""


def of_every_header() -> dict[str, str]:
    """Return fields that are valid in every header: the topic is `orders`, and each group is `kitchen`."""
    fields: dict[str, str] = {}
    for kind in (each for each in vars(headers).values() if isinstance(each, type) and issubclass(each, Header)):
        for field in msgspec.structs.fields(kind):
            text = str(field.type)
            sample = "1" if "int" in text.lower() else "false" if "bool" in text else field.name
            if field.name == "topic":
                sample = "orders"
            elif field.name.endswith("group") and field.name != "producer_group":
                sample = "kitchen"
            fields.setdefault(field.encode_name, sample)
    return fields
