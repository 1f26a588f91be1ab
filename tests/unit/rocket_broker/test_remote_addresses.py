"""White lists, in the notation of Apache's files."""

import pytest

from rocket_broker.access.remote_address import NoAddress, parse_patterns


def matches(text: str | None, host: str) -> bool:
    """Return whether an entry of a white list has the host."""
    return any(pattern.matches(host) for pattern in parse_patterns(text))


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ("*", "10.0.0.1 ::1 memory", ""),
        ("*.*.*.*", "10.0.0.1 ::1", ""),
        ("*:*:*:*:*:*:*:*", "10.0.0.1 ::1", ""),
        ("", "", "10.0.0.1 ::1 memory"),
        ("  ", "", "10.0.0.1"),
        ("127.0.0.1", "127.0.0.1 ::ffff:127.0.0.1", "127.0.0.2 ::1 memory"),
        ("127.0.0.1,127.0.0.3", "127.0.0.1 127.0.0.3", "127.0.0.2"),
        ("127.0.0.{1,3}", "127.0.0.1 127.0.0.3", "127.0.0.2"),
        ("127.0.0.1-20", "127.0.0.1 127.0.0.20", "127.0.0.0 127.0.0.21 127.0.1.1"),
        ("127.0.0.*", "127.0.0.0 127.0.0.255", "127.0.1.0"),
        ("127.0.1-20.*", "127.0.1.255 127.0.20.0", "127.0.0.1 127.0.21.0"),
        ("127.1-20.*.*", "127.1.0.0 127.20.9.9", "127.21.0.0 126.1.0.0"),
        ("10.*.*.*", "10.0.0.0 10.255.255.255", "11.0.0.0"),
        ("::1", "::1 0:0:0:0:0:0:0:1", "::2 127.0.0.1"),
        ("::1,::7", "::1 ::7", "::2"),
        ("5::7:6:{1,ff}", "5::7:6:1 5::7:6:ff", "5::7:6:2"),
        ("5::7:6:1-200", "5::7:6:1 5::7:6:200", "5::7:6:201 5::7:7:1"),
        ("5::7:6:1-200:*", "5::7:6:1:0 5::7:6:200:ffff", "5::7:6:201:0"),
        ("fe80:0:0:0:0:0:0:*", "fe80::1 fe80::1%eth0", "fe80::1:0:0:1"),
    ],
)
def test_entry_has_its_addresses(entry: str, inside: str, outside: str) -> None:
    """Addresses, lists, ranges and any part, for both versions of IP."""
    assert [host for host in inside.split() if not matches(entry, host)] == []
    assert [host for host in outside.split() if matches(entry, host)] == []


@pytest.mark.parametrize(
    "entry",
    [
        "127.0.0", "127.0.0.256", "host.example", "127.0.0.20-1", "127.0.0.1-256", "127.0.0.-1", "127.0.0.x-9", "*.*",
        "127.0.0.{}", "127.0.{0,1}.1}", "127.0.0{1,2}", "127.0.0.1,x", ",", "5::7::*", "1:2:3:4:5:6:7:8:*", "1:2:*",
        "::1-fffff",
    ],
)  # fmt: skip
def test_entry_without_a_meaning_is_refused(entry: str) -> None:
    """The error shows the entry, or the wrong address in it."""
    with pytest.raises(NoAddress):
        parse_patterns(entry)
