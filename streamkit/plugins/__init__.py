"""Plugins: extensions of applications by packages other than streamkit.

::

    from streamkit.plugins import hookimpl

    @hookimpl
    def streamkit_message_converters():
        from zoo.converters import CageConverter

        return [CageConverter()]

:mod:`streamkit.plugins.hooks` lists the hooks. A plugin is installed by an entry point of the group
``streamkit.plugins``, or given to an application: ``StreamApplication(plugins=[zoo_plugin])``.
"""

import pluggy

__all__ = ["hookimpl"]

hookimpl = pluggy.HookimplMarker("streamkit")
