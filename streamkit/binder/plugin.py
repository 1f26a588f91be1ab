"""The pluggy hooks by which a binder's package hands over its binder.

A plugin module looks like this, with the client imported inside the hook::

    from streamkit.binder.plugin import hookimpl

    @hookimpl
    def streamkit_create_binder(type, name, context):
        if type == "mymq":
            from my_package.binder import MyBinder
            return MyBinder(name, context)

    @hookimpl
    def streamkit_extended_models(type):
        if type == "mymq":
            from my_package.properties import MyConsumerProperties, MyProducerProperties
            return MyConsumerProperties, MyProducerProperties

    @hookimpl
    def streamkit_settings_models(type):
        if type == "mymq":
            from my_package.properties import MyBinderProperties
            return {"spring.cloud.stream.mymq.binder": MyBinderProperties}
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import pluggy
from pydantic import BaseModel

from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.delivery import ConsumerModel, ProducerModel

__all__ = ["PROJECT", "BinderHooks", "hookimpl", "hookspec"]

PROJECT: Final = "streamkit"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class BinderHooks:
    """What a plugin may implement; each hook answers for its own type and returns ``None`` for others."""

    @hookspec(firstresult=True)
    def streamkit_create_binder(self, type: str, name: str, context: BinderContext) -> Binder | None:  # noqa: A002
        """Return a binder of ``type`` called ``name``, not started yet."""

    @hookspec(firstresult=True)
    def streamkit_is_default_candidate(self, type: str) -> bool | None:  # noqa: A002
        """Return False if ``type`` serves only applications that name it."""

    @hookspec(firstresult=True)
    def streamkit_shared_system(
        self,
        type: str,  # noqa: A002
        name: str,
        context: BinderContext,
    ) -> AbstractAsyncContextManager[Mapping[str, str]] | None:
        """Return what the worker processes of one application share and their supervisor starts, such as a broker.

        Its value, when it is entered, is the settings by which the binders of ``type`` in the workers find it.
        """

    @hookspec(firstresult=True)
    def streamkit_settings_models(self, type: str) -> Mapping[str, type[BaseModel]] | None:  # noqa: A002
        """Return the models of ``type``'s own settings by their prefix, for reports and the reference page."""

    @hookspec(firstresult=True)
    def streamkit_extended_models(self, type: str) -> tuple[ConsumerModel, ProducerModel] | None:  # noqa: A002
        """Return the models of ``type``'s extended consumer and producer properties."""
