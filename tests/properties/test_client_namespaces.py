"""Namespaces are prepended to names and removed as by Apache's client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_client import ClientSettings, Namespace, ProducerSettings
from rocket_client.blocking import BlockingClient
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import SYSTEM_TOPICS, dlq_topic, retry_topic

WORDS = st.text("abcXYZ019_-", min_size=1, max_size=8)
SPACES = WORDS.map(Namespace)
NAMES = st.one_of(WORDS, WORDS.map(retry_topic), WORDS.map(dlq_topic))


@given(SPACES, NAMES)
def test_wrapped_name_is_unwrapped(namespace: Namespace, name: str) -> None:
    """Any topic or group is unchanged by both, and wrapping twice has no effect."""
    wrapped = namespace.wrap(name)
    assert wrapped != name
    assert namespace.wrap(wrapped) == wrapped
    assert namespace.unwrap(wrapped) == name


@given(SPACES, SPACES, NAMES)
def test_other_namespace_is_not_removed(mine: Namespace, theirs: Namespace, name: str) -> None:
    """A tenant sees another one's names in full."""
    if mine.name != theirs.name:
        assert mine.unwrap(theirs.wrap(name)) == theirs.wrap(name)
        assert mine.wrap(name) != theirs.wrap(name)


@given(NAMES, st.sampled_from([None, ""]))
def test_no_namespace_changes_nothing(name: str, none: str | None) -> None:
    """Neither unset nor empty."""
    namespace = Namespace(none)
    assert not namespace
    assert namespace.wrap(name) == namespace.unwrap(name) == name


@given(SPACES, NAMES, st.integers(0, 9))
def test_queues_keep_broker_and_number(namespace: Namespace, topic: str, number: int) -> None:
    """Only their topic is wrapped."""
    queue = MessageQueue(topic, "broker-a", number)
    wrapped = namespace.wrap_queue(queue)
    assert wrapped == MessageQueue(namespace.wrap(topic), "broker-a", number)
    assert namespace.unwrap_queue(wrapped) == queue


def test_prefixes_of_groups_stay_in_front() -> None:
    """``%RETRY%ns%kitchen``, and not ``ns%%RETRY%kitchen``."""
    namespace = Namespace("ns")
    assert namespace.wrap("orders") == "ns%orders"
    assert namespace.wrap("%RETRY%kitchen") == "%RETRY%ns%kitchen"
    assert namespace.wrap("%DLQ%kitchen") == "%DLQ%ns%kitchen"
    assert namespace.unwrap("%DLQ%ns%kitchen") == "%DLQ%kitchen"


@pytest.mark.parametrize("name", [*sorted(SYSTEM_TOPICS), "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS", ""])
def test_system_names_are_in_no_namespace(name: str) -> None:
    """Nor are missing names."""
    assert Namespace("ns").wrap(name) == name


@pytest.mark.parametrize("name", ["a%b", "%", "a b", "ä", "rmq_sys_a", "CID_RMQ_SYS_a"])
def test_illegal_namespaces_are_refused(name: str) -> None:
    """They would be split elsewhere or resemble other names."""
    with pytest.raises(ValueError, match="namespace"):
        ClientSettings(name_servers="a:1", namespace=name)


@pytest.mark.parametrize(
    ("address", "namespace"),
    [
        ("MQ_INST_123_abc.mq.example:80", "MQ_INST_123_abc"),
        ("MQ_INST_123.example:80", None),
        ("a.MQ_INST_1_b.example:80", None),
        ("a:9876", None),
    ],
)
def test_address_may_contain_the_namespace(address: str, namespace: str | None) -> None:
    """As on Alibaba Cloud; the setting takes precedence."""
    assert ClientSettings(name_servers=address).namespace == namespace
    assert ClientSettings(name_servers=address, namespace="set").namespace == "set"


def test_blocking_client_refuses_a_namespace() -> None:
    """It uses full names, and the error shows them."""
    with pytest.raises(ValueError, match="such as 'ns%report'"):
        BlockingClient("report", ProducerSettings(name_servers="a:1", namespace="ns"))
