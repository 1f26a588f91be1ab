"""Where groups that have no member yet begin: an anonymous member's, and those a producer's settings require."""

from collections.abc import Sequence

from rocket_client import Admin, TopicNotFoundError
from rocket_remoting import ResponseError
from rocket_remoting.bodies import SubscriptionGroupConfig
from rocket_remoting.message import MessageQueue


async def begin_now(admin: Admin, group: str, topics: Sequence[str]) -> None:
    """Make the group and commit the end of every queue for it: it gets only what is sent from now on.

    Without a committed offset a broker gives a young queue from its beginning; 5.x brokers take an offset
    only of a group they know.
    """
    await admin.create_group(SubscriptionGroupConfig(group_name=group))
    for topic in topics:
        for queue in await _queues(admin, topic):
            await admin.commit_offset(queue, group, await admin.max_offset(queue))


async def keep_for(admin: Admin, group: str, topic: str) -> None:
    """What is sent to the topic from now on is there for the group when its first member comes.

    A group that has been there stays where it is. So does one that the broker would begin at the first message, as it
    does while it has the whole of a queue.
    """
    for queue in await _queues(admin, topic):
        if await admin.committed_offset(queue, group) is None:
            await _commit_end(admin, group, queue)


async def _commit_end(admin: Admin, group: str, queue: MessageQueue) -> None:
    end = await admin.max_offset(queue)
    try:
        await admin.commit_offset(queue, group, end)
    except ResponseError:
        # 5.x: the group is unknown. Made only now: it would reset the settings of one that is known.
        await admin.create_group(SubscriptionGroupConfig(group_name=group))
        await admin.commit_offset(queue, group, end)


async def _queues(admin: Admin, topic: str) -> Sequence[MessageQueue]:
    try:
        return (await admin.topic_route(topic)).subscribe_queues
    except TopicNotFoundError:
        return ()  # a topic that does not exist yet has no history
