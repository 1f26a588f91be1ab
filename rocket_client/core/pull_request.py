"""The header of a pull. This module does no I/O."""

from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.headers import PullMessageRequestHeader
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import (
    PULL_COMMIT_OFFSET,
    PULL_LITE,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
)


def pull_header(
    group: str,
    queue: MessageQueue,
    offset: int,
    subscription: SubscriptionData,
    *,
    max_messages: int,
    hold_ms: int,
    commit: int = 0,
    posts_subscription: bool = True,
    lite: bool = False,
) -> PullMessageRequestHeader:
    """Return the header of a pull.

    Args:
        group: The consumer group.
        queue: The queue.
        offset: The first offset wanted.
        subscription: The messages wanted.
        max_messages: Maximum number of messages wanted.
        hold_ms: Milliseconds for which the broker may hold a pull that finds nothing; 0 for an answer at once.
        commit: The group's offset to commit with the pull; 0 for none.
        posts_subscription: Whether the request carries the subscription; otherwise the broker uses the subscription of
            the group's last heartbeat.
        lite: Whether the application polls.
    """
    flag = PULL_SUSPEND if hold_ms else 0
    if commit > 0:
        flag |= PULL_COMMIT_OFFSET
    if posts_subscription:
        flag |= PULL_SUBSCRIPTION
    if lite:
        flag |= PULL_LITE
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_messages,
        sys_flag=flag,
        commit_offset=commit,
        suspend_timeout_millis=hold_ms,
        subscription=subscription.sub_string if posts_subscription else None,
        sub_version=subscription.sub_version,
        expression_type=subscription.expression_type,
        broker_name=queue.broker_name,
    )
