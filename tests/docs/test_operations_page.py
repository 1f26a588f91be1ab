"""docs/operations.md: which settings may be changed while a server runs."""

import re
from pathlib import Path

import pytest

from rocket_broker.apache_settings import ApacheSettings
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings import BrokerSettings

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.parametrize(
    ("server", "settings"), [("the broker", BrokerSettings), ("the name server", NameServerSettings)]
)
def test_the_settings_that_may_be_changed_are_listed(server: str, settings: type[ApacheSettings]) -> None:
    """All of them, and no others."""
    (row,) = re.findall(rf"^\| {server} \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == settings.changeable()


def test_the_settings_that_only_the_file_changes_are_listed() -> None:
    """All of them, and no others; none of a running name server's is one."""
    (row,) = re.findall(r"^\| nothing, by requests: [^|]* \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == BrokerSettings.local()
    assert NameServerSettings.local() == []
