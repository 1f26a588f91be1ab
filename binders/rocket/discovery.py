"""What the brokers of a cluster can do, as their settings say once we are connected.

timerWheelEnable       DELAY_ANY    5.x and the bundled broker; 4.9 does not know it
enablePropertyFilter   SQL          off unless set, but on in the bundled broker without a settings file
"""

import logging
from typing import Final

from rocket_client import Admin
from rocket_remoting.wire.errors import ResponseError
from streamkit.binder.capabilities import Capability

logger = logging.getLogger(__name__)

_ASKED: Final = {
    Capability.DELAY_ANY: "timerWheelEnable",
    Capability.SQL: "enablePropertyFilter",
}


async def discovered(admin: Admin) -> frozenset[Capability]:
    """Return what all brokers can do of what some cannot.

    Raises:
        RemotingError: A broker could not be asked.
    """
    try:
        brokers = await admin.broker_settings()
    except ResponseError as error:
        logger.warning(
            "A broker does not tell its settings, so that it is taken to lack delays at will and SQL: %s",
            error,
        )
        return frozenset()
    return frozenset(
        capability
        for capability, setting in _ASKED.items()
        if brokers and all(settings.get(setting) == "true" for settings in brokers.values())
    )
