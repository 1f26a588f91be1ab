"""The topics and groups that are the broker's own, and what clients may do with each.

The rules allow what Apache's clients and tools of 4.9 and 5.3 need, and no more::

    topics                       send   pull                 offsets, locks   configure, delete
    INTERNAL                     no     TOOLS_CONSUMER only  no               no
    REPORTS                      no     yes                  yes              no
    SHARED                       yes    yes                  yes              no

    groups                       pull, offsets, locks, members       configure, delete
    CID_RMQ_SYS_…                no                                  no
    predefined                   yes                                 no

Reading requests (offsets, statistics, messages by id or key) are allowed for all of them.
"""

from rocket_broker.limits.refusal import Refusal
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    DELETIONS_TOPIC,
    OFFSET_MOVED_EVENT,
    REPLY_TOPIC_POSTFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
    TOOLS_CONSUMER_GROUP,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

__all__ = ["INTERNAL_TOPICS", "PREDEFINED_GROUPS", "REPORT_TOPICS", "SHARED_TOPICS", "SystemNames"]

INTERNAL_TOPICS = frozenset({SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TIMER_TOPIC, DELETIONS_TOPIC})
"""Topics that only the broker reads, like every other topic whose name begins with ``rmq_sys_``. mqadmin's printMsg,
printMsgByQueue, consumeMessage and queryMsgByOffset show their messages, as the group TOOLS_CONSUMER."""

REPORT_TOPICS = frozenset({TRANS_CHECK_MAX_TIME_TOPIC, OFFSET_MOVED_EVENT, SELF_TEST_TOPIC})
"""Topics that the broker writes for people. Applications consume TRANS_CHECK_MAX_TIME_TOPIC, and mqadmin's
startMonitoring consumes OFFSET_MOVED_EVENT as a push consumer, which commits offsets."""

SHARED_TOPICS = frozenset({AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC})
"""Topics that every broker has and clients use: producers send to TBW102 before their own topic exists, Apache's
benchmark programs to BenchmarkTest, tracing to RMQ_SYS_TRACE_TOPIC. The topics named like the cluster (clusterRT sends
to it) and the broker (sendMsgStatus) are shared too, and ``<cluster>_REPLY_TOPIC``."""

_CLOSED_TO_SENDERS = INTERNAL_TOPICS | REPORT_TOPICS

_PREFIX = len(SYSTEM_TOPIC_PREFIX)
_GROUP_PREFIX = len(SYSTEM_GROUP_PREFIX)

CLOUD_TRACE_PREFIX = SYSTEM_TOPIC_PREFIX + "TRACE_DATA_"
"""With a region's name, the topic that clients with the access channel CLOUD send their traces to; it is shared."""

PREDEFINED_GROUPS = frozenset(
    {
        TOOLS_CONSUMER_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)
"""The groups that every broker has. Tools consume as members of them, so clients can neither change nor delete them."""


class SystemNames:
    """Decides what clients may do with the topics and groups of one broker."""

    def __init__(self, settings: BrokerSettings) -> None:
        cluster = settings.broker_cluster_name
        trace = {settings.msg_trace_topic_name} if settings.trace_topic_enable else set()
        self._shared = SHARED_TOPICS | trace | {cluster, settings.broker_name, f"{cluster}_{REPLY_TOPIC_POSTFIX}"}

    def is_topic(self, topic: str) -> bool:
        """Return whether the topic is the broker's own, so that clients can neither configure nor delete it."""
        return topic in self._shared or topic in _CLOSED_TO_SENDERS or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def is_internal(self, topic: str) -> bool:
        """Return whether only the broker, and tools that show its messages, read the topic."""
        if topic in INTERNAL_TOPICS:
            return True
        return topic.startswith(SYSTEM_TOPIC_PREFIX) and not (
            topic.startswith(CLOUD_TRACE_PREFIX) or topic in self._shared
        )

    # The next three run for every send, pull and commit: their first condition is cheap, and passes nearly all names.

    def check_send(self, topic: str) -> None:
        """Check that clients may send to the topic.

        Raises:
            Refusal: The topic is closed to senders.
        """
        if topic in _CLOSED_TO_SENDERS or (topic[:_PREFIX] == SYSTEM_TOPIC_PREFIX and self.is_internal(topic)):
            raise Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")

    def check_pull(self, group: str, topic: str) -> None:
        """Check that a group may pull from the topic.

        Raises:
            Refusal: The group is the broker's own, or the topic is internal and the group not TOOLS_CONSUMER.
        """
        if (
            topic in INTERNAL_TOPICS
            or topic[:_PREFIX] == SYSTEM_TOPIC_PREFIX
            or group[:_GROUP_PREFIX] == SYSTEM_GROUP_PREFIX
        ):
            self.check_group(group)
            if self.is_internal(topic) and group != TOOLS_CONSUMER_GROUP:
                raise Refusal(
                    ResponseCode.NO_PERMISSION,
                    f"the topic[{topic}] is the broker's own: "
                    f"only {TOOLS_CONSUMER_GROUP} may pull from it, not {group}",
                )

    def check_offsets(self, group: str, topic: str) -> None:
        """Check that clients may set the group's offsets in the topic, and lock its queues.

        Raises:
            Refusal: The group is the broker's own, or the topic is internal.
        """
        if (
            topic in INTERNAL_TOPICS
            or topic[:_PREFIX] == SYSTEM_TOPIC_PREFIX
            or group[:_GROUP_PREFIX] == SYSTEM_GROUP_PREFIX
        ):
            self.check_group(group)
            if self.is_internal(topic):
                raise Refusal(
                    ResponseCode.NO_PERMISSION,
                    f"the topic[{topic}] is the broker's own: {group} can neither commit offsets nor lock queues there",
                )

    def check_group(self, group: str) -> None:
        """Check that clients may consume as the group.

        Raises:
            Refusal: The group is the broker's own.
        """
        if group.startswith(SYSTEM_GROUP_PREFIX):
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] is the broker's own: choose a name that does not begin with "
                f"{SYSTEM_GROUP_PREFIX}",
            )

    def check_group_change(self, group: str) -> None:
        """Check that clients may configure or delete the group.

        Raises:
            Refusal: The group is the broker's own or predefined.
        """
        self.check_group(group)
        if group in PREDEFINED_GROUPS:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] is predefined: it can be neither configured nor deleted",
            )

    def check_topic_change(self, topic: str) -> None:
        """Check that clients may configure or delete the topic.

        Raises:
            Refusal: The topic is the broker's own.
        """
        if self.is_topic(topic):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")
