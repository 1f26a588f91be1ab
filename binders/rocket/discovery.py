"""Find the optional capabilities of a cluster in the settings of its brokers.

timerWheelEnable       DELAY_ANY    5.x and the bundled broker; 4.9 does not have the setting
enablePropertyFilter   SQL          off by default; on in the bundled broker without a settings file
"""

import logging
from typing import Final

from rocket_client import Admin
from rocket_remoting.wire.errors import ResponseError
from streamkit.binder.capabilities import Capability

logger = logging.getLogger(__name__)

_SETTINGS: Final = {
    Capability.DELAY_ANY: "timerWheelEnable",
    Capability.SQL: "enablePropertyFilter",
}


async def discover_capabilities(admin: Admin) -> frozenset[Capability]:
    """Return the optional capabilities that all brokers have; none if a broker refuses to return its settings.

    Raises:
        RemotingError: A broker cannot be reached.
    """
    try:
        brokers = await admin.broker_settings()
    except ResponseError as error:
        logger.warning(
            "Could not read a broker's settings; assuming neither arbitrary delays nor SQL filters: %s",
            error,
        )
        return frozenset()
    return frozenset(
        capability
        for capability, setting in _SETTINGS.items()
        # `all` is true of an empty table: without a known broker, no capability is certain.
        if brokers and all(settings.get(setting) == "true" for settings in brokers.values())
    )
