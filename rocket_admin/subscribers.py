"""The groups that consume a topic."""

from rocket_client import Admin

__all__ = ["groups_of_topic"]


async def groups_of_topic(admin: Admin, address: str, topic: str) -> set[str]:
    """Return the groups that subscribe to a topic at the broker at an address, or have committed offsets there.

    Apache's brokers of 5.3 note the name of the topic instead of that of a group that subscribes to it. So such a group
    is missing until it has committed an offset, and the topic's own name counts only if it is a group's.
    """
    groups = await admin.groups_of_topic_at(address, topic)
    if topic in groups and not await _is_group(admin, address, topic):
        groups.discard(topic)
    return groups


async def _is_group(admin: Admin, address: str, topic: str) -> bool:
    """Return whether there is a group of the topic's name that subscribes to the topic, or has offsets in it."""
    members = await admin.members_at(address, topic)
    if members is not None and topic in members.subscription_table:
        return True
    progress = await admin.progress_at(address, topic)
    return any(queue.topic == topic for queue in progress.offset_table)
