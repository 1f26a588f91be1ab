"""A consumer's settings and state, which consoles and mqadmin show (GET_CONSUMER_RUNNING_INFO)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from rocket_client.core.process_queue import ProcessQueue
from rocket_client.settings import ClientSettings
from rocket_remoting.wire.bodies import ConsumerRunningInfo, ConsumeType, ProcessQueueInfo, SubscriptionData
from rocket_remoting.wire.codes import CURRENT_VERSION
from rocket_remoting.wire.message import MessageQueue

MIB = 1024 * 1024


def running_info(
    settings: ClientSettings,
    name_servers: Sequence[str],
    started_at_ms: int,
    now_ms: int,
    *,
    consume_type: ConsumeType,
    concurrency: int,
    orderly: bool,
    subscriptions: Sequence[SubscriptionData],
    process_queues: Collection[ProcessQueue],
    offsets: Mapping[MessageQueue, int],
) -> ConsumerRunningInfo:
    """Return a consumer's settings, subscriptions and process queues. Rates are not measured and left out."""
    properties = {name: str(getattr(settings, name)) for name in settings.__struct_fields__}
    properties |= {
        "PROP_NAMESERVER_ADDR": ";".join(name_servers) + ";",
        "PROP_CONSUME_TYPE": consume_type.value,
        "PROP_CLIENT_VERSION": CURRENT_VERSION.name,
        "PROP_CONSUMEORDERLY": "true" if orderly else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_at_ms),
    }
    # Process queues have times of the event loop; consoles expect milliseconds since the epoch.
    shift = now_ms - round(asyncio.get_running_loop().time() * 1000)
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=sorted(subscriptions, key=lambda subscription: subscription.topic),
        mq_table={
            queue.message_queue: _queue_info(queue, offsets.get(queue.message_queue, -1), shift)
            for queue in sorted(process_queues, key=lambda queue: queue.message_queue)
        },
        status_table={},
    )


def _queue_info(queue: ProcessQueue, committed: int, shift: int) -> ProcessQueueInfo:
    first, last = queue.cached_offsets()
    return ProcessQueueInfo(
        commit_offset=committed,
        cached_msg_min_offset=first,
        cached_msg_max_offset=last,
        cached_msg_count=len(queue),
        cached_msg_size_in_mi_b=queue.size // MIB,
        locked=queue.locked_at is not None,
        last_lock_timestamp=shift + round((queue.locked_at or 0) * 1000),
        droped=queue.dropped,
        last_pull_timestamp=shift + round(queue.last_pull_at * 1000),
        last_consume_timestamp=shift + round(queue.last_consume_at * 1000),
    )
