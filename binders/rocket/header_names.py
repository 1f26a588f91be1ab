"""The names of the headers that received messages have from RocketMQ, as Spring Cloud Alibaba's binder names them."""

from typing import Final

ROCKETMQ_PREFIX: Final = "rocketmq_"
TOPIC: Final = "rocketmq_TOPIC"
MESSAGE_ID: Final = "rocketmq_MESSAGE_ID"
BORN_TIMESTAMP: Final = "rocketmq_BORN_TIMESTAMP"
BORN_HOST: Final = "rocketmq_BORN_HOST"
FLAG: Final = "rocketmq_FLAG"
QUEUE_ID: Final = "rocketmq_QUEUE_ID"
QUEUE_OFFSET: Final = "rocketmq_QUEUE_OFFSET"
SYS_FLAG: Final = "rocketmq_SYS_FLAG"
TRANSACTION_ID: Final = "rocketmq_TRANSACTION_ID"
RECONSUME_TIMES: Final = "rocketmq_RECONSUME_TIMES"
KEYS: Final = "rocketmq_KEYS"
TAGS: Final = "rocketmq_TAGS"
