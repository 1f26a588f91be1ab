"""Illegal topic and group names are reported before connecting."""

import asyncio
from pathlib import Path

import pytest

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError

BINDINGS = "spring.cloud.stream.bindings"
ROCKET = "spring.cloud.stream.rocketmq"


def refused(directory: Path, *lines: str, listeners: str = "in") -> str:
    """Return the error of an application with these settings; no name server is asked."""
    file = directory / "application.properties"
    standing = f"spring.cloud.stream.default-binder=rocketmq\n{ROCKET}.binder.name-server=127.0.0.1:1\n"
    file.write_text(standing + "\n".join(lines))
    app = StreamApplication(config_location=file)
    for name in listeners.split():
        app.stream_listener(name)(lambda: None)
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(app.start())
    return str(caught.value).replace(str(file), "application.properties")


ILLEGAL = "has a character outside a-z A-Z 0-9 _ - % |"
LONG = "x" * 128
NO_ADDRESS = "is not an address: expected host:port, such as 127.0.0.1:9876"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"{BINDINGS}.in.destination=no good", f"the topic name 'no good' {ILLEGAL}"),
        (f"{BINDINGS}.in.destination=orders,no good", f"the topic name 'no good' {ILLEGAL}"),
        (f"{BINDINGS}.in.destination={LONG}", f"the topic name has 128 characters, at most 127 are allowed: {LONG[:40]}…"),  # noqa: E501
        (f"{BINDINGS}.in.group=my group", f"the group name 'my group' {ILLEGAL}"),
        (f"{BINDINGS}.out.destination=no good", f"the topic name 'no good' {ILLEGAL}"),
        (f"{BINDINGS}.out.producer.required-groups=a b", f"the group name 'a b' {ILLEGAL}"),
        (f"{ROCKET}.bindings.out.producer.group=a b", f"the group name 'a b' {ILLEGAL}"),
        (f"{ROCKET}.binder.group=a b", f"the group name 'a b' {ILLEGAL}"),
        (f"{ROCKET}.binder.namespace=a%b", "namespace: 'a%b' contains %, which separates namespace and name"),
        (f"{ROCKET}.bindings.out.producer.namespace=a b", f"namespace: the group name 'a b' {ILLEGAL}"),
        (f"{ROCKET}.binder.nameServer=localhost", f"'localhost' {NO_ADDRESS}"),
        (f"{ROCKET}.binder.nameServer=a:9876;b:99999", f"'b:99999' {NO_ADDRESS}"),
    ],
)  # fmt: skip
def test_illegal_name_is_reported_with_its_setting(tmp_path: Path, line: str, reason: str) -> None:
    """File, line, key, value and reason."""
    reported = refused(
        tmp_path, "spring.cloud.stream.output-bindings=out", f"{BINDINGS}.in.content-type=text/plain", line
    )
    assert reported.removeprefix("1 setting is wrong:\n  - ") == f"application.properties:5: {line}: {reason}"


def test_name_length_includes_the_namespace(tmp_path: Path) -> None:
    """The full name counts, as brokers see it."""
    topic = "x" * 120
    reported = refused(tmp_path, f"{ROCKET}.binder.namespace=namespace", f"{BINDINGS}.in.destination={topic}")
    assert reported.endswith(f"the topic name has 130 characters, at most 127 are allowed: namespace%{'x' * 30}…")


def test_illegal_name_without_a_setting_is_reported_with_its_binding(tmp_path: Path) -> None:
    """The destination defaults to the binding's name."""
    reported = refused(tmp_path, "spring.cloud.stream.output-bindings=out put", f"{BINDINGS}.in.group=g")
    assert reported == f"binding 'out put': the topic name 'out put' {ILLEGAL}"


def test_members_of_one_group_need_equal_subscriptions(tmp_path: Path) -> None:
    """Two bindings of a group with different tags would lose each other's messages."""
    reported = refused(
        tmp_path,
        f"{BINDINGS}.red.destination=orders",
        f"{BINDINGS}.red.group=kitchen",
        f"{ROCKET}.bindings.red.consumer.tags=red",
        f"{BINDINGS}.blue.destination=orders",
        f"{BINDINGS}.blue.group=kitchen",
        f"{ROCKET}.bindings.blue.consumer.tags=blue",
        listeners="red blue",
    )
    assert reported == (
        f"application.properties:7: {BINDINGS}.blue.group=kitchen: "
        "bindings 'red' and 'blue' are both in group 'kitchen', but one subscribes to 'orders' with tags 'red', "
        "the other to 'orders' with tags 'blue'. All members of a RocketMQ group must subscribe to the same, or "
        "messages get lost: give each of the bindings a group of its own, or list all topics in one binding's "
        "destination."
    )


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    """Names along with all other mistakes."""
    lines = [f"{BINDINGS}.in.destination=no good", f"{BINDINGS}.other.destination=neither this"]
    reported = refused(tmp_path, *lines, listeners="in other nowhere")
    assert reported.startswith("3 things are wrong:\n")
    for part in ("'no good'", "'neither this'", "names binding 'nowhere'"):
        assert part in reported
