"""Django's default connection, on a database of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.conf import settings
from django.db import connections


@contextmanager
def django_on(engine: str, name: str, **where: object) -> Iterator[None]:
    """Connect Django's default connection to a database, inside the block.

    Args:
        engine: The last part of the name of Django's package for it, such as `sqlite3`.
        name: The database, or its file.
        where: Further settings, such as `HOST`.
    """
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    before = connections.settings["default"]
    made = {"ENGINE": f"django.db.backends.{engine}", "NAME": name, **where}
    connections.settings["default"] = connections.configure_settings({"default": made})["default"]
    forget()
    try:
        yield
    finally:
        connections.settings["default"] = before
        forget()


def forget() -> None:
    """Close the default connection of this thread; the next one is made by the settings."""
    connections["default"].close()
    del connections["default"]
