"""The HTTP server of name server addresses: its URL, and which answers are accepted."""

from datetime import timedelta

import pytest

from rocket_client import AddressFetchError, ClientSettings
from rocket_client.core.address_server import MAX_ANSWER, AddressServer
from rocket_client.core.name_server_order import NameServerOrder


def server_of(domain: str = "mq.example.org", subgroup: str = "nsaddr", unit_name: str | None = None) -> AddressServer:
    """Return the server of the settings."""
    server = AddressServer.of(
        ClientSettings(name_server_domain=domain, name_server_subgroup=subgroup, unit_name=unit_name)
    )
    assert server is not None
    return server


@pytest.mark.parametrize(
    ("server", "url", "endpoint"),
    [
        (server_of(), "http://mq.example.org:8080/rocketmq/nsaddr", ("mq.example.org", 8080)),
        (server_of("mq:80", "mine"), "http://mq:80/rocketmq/mine", ("mq", 80)),
        (server_of("mq", unit_name="a b"), "http://mq:8080/rocketmq/nsaddr-a%20b?nofix=1", ("mq", 8080)),
        (server_of("[::1]"), "http://[::1]:8080/rocketmq/nsaddr", ("::1", 8080)),
        (server_of("[::1]:80"), "http://[::1]:80/rocketmq/nsaddr", ("::1", 80)),
    ],
)
def test_url_is_that_of_apaches_client(server: AddressServer, url: str, endpoint: tuple[str, int]) -> None:
    """Port 8080 unless the domain names a port; a unit name is appended."""
    assert (server.url, server.endpoint) == (url, endpoint)


def test_no_line_break_gets_into_the_request() -> None:
    """Whatever the subgroup is."""
    assert server_of(subgroup="a\r\nb: c").request().startswith(b"GET /rocketmq/a%0D%0Ab%3A%20c HTTP/1.1\r\n")


def test_configured_addresses_are_not_fetched() -> None:
    """Also if there is a domain."""
    assert AddressServer.of(ClientSettings(name_servers="a:1", name_server_domain="mq")) is None


@pytest.mark.parametrize(
    "domain", ["", "http://mq", "mq/path", "a b", "mq:", "mq:x", "mq:65536", "mq\r\n", "a..b", "ü"]
)
def test_domain_is_a_host_with_or_without_a_port(domain: str) -> None:
    """Anything else is refused when the settings are made."""
    with pytest.raises(ValueError, match=r"name_server_domain: .* is neither a host"):
        ClientSettings(name_server_domain=domain)


def test_interval_of_the_refresh_is_positive() -> None:
    """Two minutes by default, as in Apache's client."""
    assert ClientSettings(name_server_domain="mq").name_server_refresh_interval == timedelta(minutes=2)
    with pytest.raises(ValueError, match="name_server_refresh_interval"):
        ClientSettings(name_server_domain="mq", name_server_refresh_interval=timedelta())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\na:1;b:2",
        b"HTTP/1.0 200 OK\r\n\r\na:1;b:2",
        b"HTTP/1.1 200 OK\r\n\r\n\n a:1;b:2\r\nc:3\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na:1;\r\n3\r\nb:2\r\n0\r\n\r\n",
    ],
)
def test_first_line_of_the_answer_counts(answer: bytes) -> None:
    """In any form of HTTP/1."""
    assert server_of().addresses(answer) == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "the answer is not HTTP"),
        (b"\x00\x01nonsense", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na:1", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 404 Not Found\r\n\r\na:1", "the answer is 404 Not Found"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://b/\r\n\r\n", "the answer is 302 Found"),
        (b"HTTP/1.1 200 OK\r\n\r\n \r\n", "the answer is empty"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "not a list of addresses: '<html>'"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe", "not a list of addresses"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a:1;" * (MAX_ANSWER // 4), "more than 65536 bytes"),
    ],
)
def test_other_answers_are_errors_with_the_url(answer: bytes, reason: str) -> None:
    """No part of such an answer is used."""
    with pytest.raises(AddressFetchError, match=reason) as caught:
        server_of().addresses(answer)
    assert caught.value.url in str(caught.value)


def test_current_name_server_stays_if_it_is_still_known() -> None:
    """Otherwise a new one is chosen."""
    order = NameServerOrder(())
    assert (order.current, order.in_turn()) == (None, ())
    order.replace(["a:1"])
    order.replace(["b:1", "a:1", "c:1"])
    assert order.in_turn() == ("a:1", "c:1", "b:1")
    order.replace(["b:1"])
    assert order.in_turn() == ("b:1",)
    order.failed("a:1", 0.0)  # the failure of a request that was sent before
    assert order.current == "b:1"
