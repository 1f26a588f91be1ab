"""Whether the native core is used: ``rocket_native``, which the distribution ``streamkit-native`` installs.

It is used wherever it is installed, unless the environment variable ``STREAMKIT_NATIVE`` is ``0``. Modules import
``rocket_native`` where they use it, after `has_native_core`.
"""

import logging
import os
from functools import cache
from typing import Final

__all__ = ["INTERFACE", "has_native_core"]

INTERFACE: Final = 12
"""The interface of the native core that this version uses."""

logger = logging.getLogger(__name__)


@cache
def has_native_core() -> bool:
    """Return whether the native core is installed, has the right interface, and is not switched off."""
    if os.environ.get("STREAMKIT_NATIVE") == "0":
        return False
    try:
        import rocket_native
    except ModuleNotFoundError:
        return False
    except (ImportError, OSError) as error:  # it is installed, and cannot be loaded
        logger.warning("the native core is not used, because it cannot be loaded: %s", error)
        return False
    is_right = rocket_native.INTERFACE == INTERFACE
    if not is_right:
        logger.warning(
            "the native core is not used, for it has interface %s, and this version of streamkit uses %s: install the"
            " version of streamkit-native that belongs to it",
            rocket_native.INTERFACE,
            INTERFACE,
        )
    return is_right
