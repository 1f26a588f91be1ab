"""The templates. All text is escaped, and characters that cannot be seen are shown as escapes such as `\\u202e`."""

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format, text_of

__all__ = ["Templates"]

_FORMATS: Final = tuple(each.value for each in Format if each is not Format.TEXT)


class Templates:
    """The templates of `rocket_console/templates`."""

    def __init__(self, **shared: object) -> None:
        """Load no template yet.

        Args:
            shared: What all templates see.
        """
        self._environment = Environment(
            loader=PackageLoader("rocket_console"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(shared, address=address)
        for name in _FORMATS:
            self._environment.filters[name] = _filter(Format(name))

    def render(self, template: str, facts: dict[str, Any]) -> str:
        """Return the HTML of a template.

        Args:
            template: Its file name.
            facts: What it sees.
        """
        return self._environment.get_template(template).render(facts)


def _visible(value: object) -> object:
    """Return what is written for an expression: HTML of our own as it is, all else as visible text."""
    return value if isinstance(value, Markup) else text_of(value)


def _filter(how: Format) -> Any:
    return lambda value: text_of(value, how)
