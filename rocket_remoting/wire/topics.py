"""Names of topics and groups: the brokers' own names, the topics of a group, and the rules for names."""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
TIMER_TOPIC = "rmq_sys_wheel_timer"
DELETIONS_TOPIC = "rmq_sys_deleted_topics"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
TOPICS_CLOSED_TO_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TIMER_TOPIC,
        DELETIONS_TOPIC,
    }
)

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
SCHEDULE_GROUP = "SCHEDULE_CONSUMER"

TOPIC_MAX_LENGTH = 127
GROUP_MAX_LENGTH = 255

# The legal characters. A name is legal if stripping them leaves nothing; this avoids compiling a pattern at each start.
_LEGAL = "%|_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def retry_topic(group: str) -> str:
    """Return the group's retry topic, in which failed messages wait for their next delivery."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the group's dead letter topic, for messages that have failed too often."""
    return DLQ_PREFIX + group


def is_dead_letter_topic(topic: str) -> bool:
    """Return whether the topic is a group's dead letter topic."""
    return topic.startswith(DLQ_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Return whether the topic is a group's retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Return whether the topic is one of the brokers' own."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Return whether the consumer group is one of the brokers' own."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def validate_topic(topic: str) -> None:
    """Check that Apache's clients and brokers accept the topic's name.

    Raises:
        ValueError: The name is illegal; the text says why.
    """
    _validate("topic", topic, TOPIC_MAX_LENGTH)


def validate_group(group: str) -> None:
    """Check that Apache's clients and brokers accept the group's name.

    Raises:
        ValueError: The name is illegal; the text says why.
    """
    _validate("group", group, GROUP_MAX_LENGTH)


def _validate(kind: str, name: str, max_length: int) -> None:
    if not name.strip():
        raise ValueError(f"the {kind} name is blank")
    if len(name) > max_length:
        raise ValueError(f"the {kind} name has {len(name)} characters, at most {max_length} are allowed: {name[:40]}…")
    if name.strip(_LEGAL):
        raise ValueError(f"the {kind} name {name!r} has a character outside a-z A-Z 0-9 _ - % |")
