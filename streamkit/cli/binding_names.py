"""Shell completion for the names of bindings: those in the settings of the current directory."""

import click

__all__ = ["complete_bindings"]


def complete_bindings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of bindings that begin with `incomplete`, sorted; none if the settings cannot be read.

    Nothing is logged: a shell waits for the names while the user types.
    """
    import logging

    from streamkit.config.environment import Environment
    from streamkit.config.relaxed import uniform_key
    from streamkit.errors import ConfigurationError

    disabled = logging.root.manager.disable
    logging.disable()
    try:
        sources = Environment.load().sources
    except ConfigurationError:
        return []
    finally:
        logging.disable(disabled)
    below = uniform_key("spring.cloud.stream.bindings")
    names = {entry.segments[0] for source in sources for entry in source.entries(below) if not entry.loose}
    return sorted(name for name in names if name.startswith(incomplete))
