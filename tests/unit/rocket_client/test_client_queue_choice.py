"""The choice of a queue while brokers are avoided."""

from rocket_client.core.queue_choice import QueueChoice
from rocket_client.core.topic_route import TopicRoute
from rocket_remoting.wire.bodies import BrokerData, QueueData, TopicRouteData
from rocket_remoting.wire.errors import ConnectError, TooManyRequests
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE


def route(*names: str) -> TopicRoute:
    """Return the route of a topic with one queue at each of the named brokers."""
    perm = PERM_READ | PERM_WRITE
    queues = [QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=perm) for name in names]
    brokers = [BrokerData(cluster="c", broker_name=name, broker_addrs={0: f"{name}:10911"}) for name in names]
    return TopicRoute("orders", TopicRouteData(queue_datas=queues, broker_datas=brokers))


def chosen(choice: QueueChoice, of: TopicRoute) -> list[str]:
    """Return the brokers of the next six messages."""
    return [choice.next_queue(of).broker_name for _ in range(6)]


def test_a_refusal_of_the_client_itself_says_nothing_about_the_broker() -> None:
    """Too many requests under way to a broker do not make it a bad one; a failed connection does."""
    choice = QueueChoice(lambda: 0.0, avoids_faults=True)
    choice.note("a", 0.0, TooManyRequests("too many requests are under way"))
    assert set(chosen(choice, route("a", "b"))) == {"a", "b"}
    choice.note("a", 0.0, ConnectError("a:10911", "refused"))
    assert set(chosen(choice, route("a", "b"))) == {"b"}


def test_the_best_of_bad_brokers_is_one_of_the_topic() -> None:
    """A broker of other topics is forgotten, also if it is the fastest; then the topic's better half is used."""
    choice = QueueChoice(lambda: 3.0, avoids_faults=True)
    for name, begun in (("other", 2.4), ("a", 2.0), ("b", 0.0)):
        choice.note(name, begun, ConnectError(f"{name}:10911", "refused"))
    choice.next_queue(route("a", "b"))
    assert set(chosen(choice, route("a", "b"))) == {"a"}
