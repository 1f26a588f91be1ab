"""Settings that the blocking client does not support are refused."""

from typing import Any

import pytest

from rocket_client import ProducerSettings
from rocket_client.blocking import BlockingClient


@pytest.mark.parametrize(
    "name", ["retry_another_broker_when_not_store_ok", "send_latency_fault_enable", "vip_channel_enabled"]
)
def test_unsupported_setting_is_refused(name: str) -> None:
    """It would otherwise be ignored silently."""
    settings: dict[str, Any] = {name: True}
    with pytest.raises(ValueError, match=rf"{name}=True has no effect in the blocking client"):
        BlockingClient("report", ProducerSettings(name_servers="a:1", **settings))
