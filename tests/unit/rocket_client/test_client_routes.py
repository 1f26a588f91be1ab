"""Routes: the queues in a name server's answer, and caching when look-ups fail."""

import asyncio
import re

import pytest

from rocket_client.connection.routes import RouteTable, vip_address
from rocket_client.core.topic_route import TopicRoute
from rocket_client.errors import NameServersUnreachableError, TopicNotFoundError
from rocket_remoting.wire.bodies import TopicRouteData, decode_body
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import MessageQueue

BARE_KEYS = (
    b'{"brokerDatas":['
    b'{"brokerAddrs":{0:"10.0.0.2:10911",1:"10.0.0.3:10911"},"brokerName":"broker-b","cluster":"c"},'
    b'{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"},'
    b'{"brokerAddrs":{1:"10.0.0.4:10911"},"brokerName":"orphan","cluster":"c"}],'
    b'"filterServerTable":{},"queueDatas":['
    b'{"brokerName":"broker-b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":1},'
    b'{"brokerName":"broker-a","perm":4,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},'
    b'{"brokerName":"orphan","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
)


def data(raw: bytes = BARE_KEYS, order_topic_conf: str | None = None) -> TopicRouteData:
    decoded = decode_body(raw, TopicRouteData)
    decoded.order_topic_conf = order_topic_conf
    return decoded


def broker(name: str, queues: int) -> bytes:
    return (
        f'{{"brokerDatas":[{{"brokerAddrs":{{"0":"{name}:10911"}},"brokerName":"{name}","cluster":"c"}}],'
        f'"queueDatas":[{{"brokerName":"{name}","perm":6,"readQueueNums":{queues},"writeQueueNums":{queues}}}]}}'
    ).encode()


STANDARD_KEYS = re.sub(rb"([{,])(\d+):", rb'\1"\2":', BARE_KEYS)


@pytest.mark.parametrize("raw", [BARE_KEYS, STANDARD_KEYS])
def test_both_json_forms_of_a_route_are_read(raw: bytes) -> None:
    """Broker ids are bare numbers or texts."""
    table = RouteTable(lambda topic: _never())
    table.put(TopicRoute("orders", data(raw)))
    assert table.master_address("broker-b") == "10.0.0.2:10911"
    assert table.address("broker-b", 1) == ("10.0.0.3:10911", 1)


async def _never() -> TopicRouteData | None:
    raise AssertionError("not to be asked")


def test_messages_are_sent_to_writable_queues_of_masters() -> None:
    """Neither to a read-only broker nor to one without a master."""
    route = TopicRoute("orders", data())
    assert route.publish_queues == (MessageQueue("orders", "broker-b", 0),)


def test_messages_are_read_from_all_readable_queues() -> None:
    """Sorted, since every member of the group must see the same order."""
    route = TopicRoute("orders", data())
    assert [(queue.broker_name, queue.queue_id) for queue in route.subscribe_queues] == [
        ("broker-a", 0),
        ("broker-b", 0),
        ("broker-b", 1),
        ("orphan", 0),
    ]


def test_invalid_parts_of_an_order_configuration_are_ignored() -> None:
    """The rest counts; an absurd number of queues uses no memory."""
    route = TopicRoute("orders", data(order_topic_conf="a:x;b;c:99999999999;broker-a:1;"))
    assert route.publish_queues == (MessageQueue("orders", "broker-a", 0),)


def test_order_configuration_fixes_the_queues() -> None:
    """Exactly those it lists, in its order, whichever brokers are alive."""
    route = TopicRoute("orders", data(order_topic_conf="gone:1;broker-a:2"))
    assert route.order_topic
    assert [(queue.broker_name, queue.queue_id) for queue in route.publish_queues] == [
        ("gone", 0),
        ("broker-a", 0),
        ("broker-a", 1),
    ]


def test_round_robin_visits_every_queue() -> None:
    """From any start."""
    route = TopicRoute("orders", data(broker("a", 3)))
    assert {route.next_queue().queue_id for _ in range(3)} == {0, 1, 2}


def test_another_broker_is_chosen_after_a_failure() -> None:
    """The failed broker's queues are skipped unless there are no others."""
    both = data(broker("a", 2))
    other = data(broker("b", 2))
    both.queue_datas += other.queue_datas
    both.broker_datas += other.broker_datas
    route = TopicRoute("orders", both)
    assert all(route.next_queue("a").broker_name == "b" for _ in range(10))
    alone = TopicRoute("orders", data(broker("a", 2)))
    assert alone.next_queue("a").broker_name == "a"


def test_new_route_continues_the_round_robin() -> None:
    """A refresh does not send every client back to the first queue."""
    table = RouteTable(lambda topic: _never())
    table.put(TopicRoute("orders", data(broker("a", 4))))
    first = table.get("orders")
    assert first is not None
    used = first.next_queue().queue_id
    table.put(TopicRoute("orders", data(broker("a", 4))))
    second = table.get("orders")
    assert second is not None
    assert second.next_queue().queue_id == (used + 1) % 4


class Answers:
    """A name server's answers by topic; an exception is raised."""

    def __init__(self, **answers: bytes | Exception) -> None:
        self.answers: dict[str, bytes | Exception] = dict(answers)
        self.asked: list[str] = []

    async def __call__(self, topic: str) -> TopicRouteData | None:
        self.asked.append(topic)
        await asyncio.sleep(0)
        answer = self.answers.get(topic)
        if isinstance(answer, Exception):
            raise answer
        return None if answer is None else data(answer)


def test_cached_route_serves_without_name_servers() -> None:
    """When no name server answers."""

    async def main() -> None:
        answers = Answers(orders=broker("a", 2))
        table = RouteTable(answers)
        known = await table.refresh("orders")
        answers.answers["orders"] = RemotingError("all gone")
        await table.refresh_all(["orders"])
        del answers.answers["orders"]
        assert await table.refresh("orders") is known

    asyncio.run(main())


def test_route_change_is_reported_once() -> None:
    """An equal route is no change."""

    async def main() -> None:
        answers = Answers(orders=broker("a", 2))
        table = RouteTable(answers)
        reported: list[int] = []
        table.changed.append(lambda route: reported.append(len(route.publish_queues)))
        for count in (2, 2, 6, 6):
            answers.answers["orders"] = broker("a", count)
            await table.refresh("orders")
        assert reported == [2, 6]

    asyncio.run(main())


def test_concurrent_lookups_share_one_request() -> None:
    """A hundred sends to a new topic look up the topic once and its default topic once."""

    async def main() -> None:
        answers = Answers(TBW102=broker("a", 8))
        table = RouteTable(answers)
        routes = await asyncio.gather(*(table.for_publishing("new", "TBW102", 4) for _ in range(100)))
        assert answers.asked == ["new", "TBW102"]
        assert len({id(route) for route in routes}) == 1

    asyncio.run(main())


def test_cancelled_lookup_continues_for_other_waiters() -> None:
    """They get the answer."""

    async def main() -> None:
        table = RouteTable(Answers(orders=broker("a", 2)))
        first = asyncio.create_task(table.refresh("orders"))
        second = asyncio.create_task(table.refresh("orders"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is not None
        assert first.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (16, 8)])
def test_missing_topic_uses_the_default_topics_route(asked: int, made: int) -> None:
    """With at most the producer's queue count, or that of the default topic, and no queue to read."""

    async def main() -> None:
        table = RouteTable(Answers(TBW102=broker("a", 8)))
        route = await table.for_publishing("new", "TBW102", asked)
        assert route.provisional
        assert [queue.topic for queue in route.publish_queues] == ["new"] * made
        assert route.subscribe_queues == ()

    asyncio.run(main())


@pytest.mark.parametrize("answers", [Answers(), Answers(closed=BARE_KEYS.replace(b'"perm":6', b'"perm":4'))])
def test_topic_without_writable_queues_is_an_error(answers: Answers) -> None:
    """Neither topic nor default topic exists, or the topic is read-only."""

    async def main() -> None:
        with pytest.raises(TopicNotFoundError, match="'closed'") as caught:
            await RouteTable(answers).for_publishing("closed", "TBW102", 4)
        assert caught.value.topic == "closed"

    asyncio.run(main())


def test_brokers_without_routes_are_dropped() -> None:
    """Addresses that no topic names any more are reported once."""
    table = RouteTable(lambda topic: _never())
    table.put(TopicRoute("orders", data(broker("a", 1))))
    table.put(TopicRoute("orders", data(broker("b", 1))))
    assert table.drop_offline_brokers() == ["a:10911"]
    assert table.drop_offline_brokers() == []
    assert table.broker_addresses(masters_only=True) == ["b:10911"]
    assert table.master_address("a") is None


def test_a_slave_in_no_route_is_dropped_from_its_broker() -> None:
    """The master stays: another topic's route has it."""
    table = RouteTable(lambda topic: _never())
    table.put(TopicRoute("bills", data(broker("a", 1))))
    table.put(TopicRoute("orders", data(broker("a", 1).replace(b'"0":"a:10911"', b'"0":"a:10911","1":"slave:10911"'))))
    assert table.broker_addresses(masters_only=False) == ["a:10911", "slave:10911"]
    table.forget("orders")
    assert table.drop_offline_brokers() == ["slave:10911"]
    assert table.broker_addresses(masters_only=False) == ["a:10911"]
    assert table.address("a", 1) == ("a:10911", 0)


def test_pull_address_may_be_another_member_of_the_broker() -> None:
    """The suggested one, the next one, or any."""
    table = RouteTable(lambda topic: _never())
    table.put(TopicRoute("orders", data()))
    assert table.address("broker-b", 0) == ("10.0.0.2:10911", 0)
    assert table.address("orphan", 0) == ("10.0.0.4:10911", 1)
    assert table.address("broker-a", 7) == ("10.0.0.1:10911", 0)
    table.put(TopicRoute("bills", data(broker("s", 1).replace(b'"0":"s:10911"', b'"0":"s0:1","2":"s2:1"'))))
    assert table.address("s", 1) == ("s2:1", 2)
    assert table.address("unknown", 0) is None


def test_vip_channel_is_two_ports_below() -> None:
    """Old clients send there."""
    assert vip_address("10.0.0.1:10911") == "10.0.0.1:10909"


def test_unavailable_name_servers_are_not_tried_for_each_topic() -> None:
    """The first topic's look-up has waited for all of them."""
    asked: list[str] = []

    async def look_up(topic: str) -> TopicRouteData | None:
        asked.append(topic)
        raise NameServersUnreachableError([], [])

    asyncio.run(RouteTable(look_up).refresh_all(["orders", "bills", "parcels"]))
    assert asked == ["orders"]
