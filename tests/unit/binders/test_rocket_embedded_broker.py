"""An embedded broker that cannot start: an error that stays fails the start; of another error health has the reason."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from binders.rocket.binder import use_transport
from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.transport import Server
from streamkit import StreamApplication
from streamkit.errors import BinderError, BinderUnavailable, ConfigurationError

STREAM = "spring.cloud.stream"
BINDER = f"{STREAM}.rocketmq.binder"
UNWRITABLE = Path("/sys/kernel")
"""A directory of Linux that not even root may write to."""


def application(folder: Path, store: Path, embedded: str = "auto") -> StreamApplication:
    """Return an application with an output on an embedded broker, whose settings are a file in a folder."""
    settings = {
        f"{STREAM}.default-binder": "rocketmq",
        f"{STREAM}.bindings.out.destination": "topic",
        f"{STREAM}.output-bindings": "out",
        f"{BINDER}.embedded": embedded,
        f"{BINDER}.embedded-store": store,
    }
    file = folder / "application.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return StreamApplication(config_location=file)


async def error_of_start(app: StreamApplication) -> Exception:
    """Start an application, which must fail, and return its error."""
    with pytest.raises((BinderError, ConfigurationError)) as caught:
        await app.start()
    return caught.value


@pytest.mark.parametrize("embedded", ["auto", "always"])
def test_store_below_a_file_fails_the_start(tmp_path: Path, embedded: str) -> None:
    """Trying again every 30 s would not help; the error has the line of the setting, which names the store."""
    (tmp_path / "file").touch()

    async def main() -> str:
        with use_transport(MemoryTransport()):
            return str(await error_of_start(application(tmp_path, tmp_path / "file" / "store", embedded)))

    error = asyncio.run(main())
    assert error.startswith(f"{tmp_path / 'application.properties'}:5: {BINDER}.embedded-store={tmp_path / 'file'}")
    assert "binder 'rocketmq' could not start its embedded broker" in error
    assert "Not a directory. Move the file away: a directory belongs there" in error
    assert "storePathRootDir" not in error


@pytest.mark.skipif(not UNWRITABLE.is_dir(), reason="Linux has a directory that nobody may write to")
def test_store_without_permission_fails_the_start(tmp_path: Path) -> None:
    """The advice names the binder's setting, and not those of a broker's file."""

    async def main() -> Exception:
        with use_transport(MemoryTransport()):
            return await error_of_start(application(tmp_path, UNWRITABLE / "streamkit"))

    error = asyncio.run(main())
    assert isinstance(error, ConfigurationError)
    assert f"set {BINDER}.embedded-store to another directory" in str(error)
    assert "storePathRootDir" not in str(error)


def test_damaged_store_fails_the_start(tmp_path: Path) -> None:
    """It does not mend itself."""
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_text("{")

    async def main() -> Exception:
        with use_transport(MemoryTransport()):
            return await error_of_start(application(tmp_path, store))

    error = asyncio.run(main())
    assert isinstance(error, BinderError)
    assert not isinstance(error, BinderUnavailable)
    assert "topics.json cannot be read" in str(error)
    assert f"To start with an empty store, set {BINDER}.embedded-store to another directory" in str(error)


def test_store_in_use_is_tried_again_and_health_has_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other broker may end."""
    store = tmp_path / "store"

    async def main() -> str:
        with use_transport(MemoryTransport()):
            app = application(tmp_path, store)
            async with EmbeddedBroker(store, transport=MemoryTransport()), app:
                bindings = (await app.health()).components["bindings"]
                return bindings.details["out"]

    reason = asyncio.run(main())
    assert reason.startswith("cannot be bound, and is tried again: binder 'rocketmq' could not start its embedded")
    assert f"{store / 'lock'}: another broker has this store open" in reason
    assert reason.partition("again: ")[2] in caplog.text


class Refusing(MemoryTransport):
    """A transport that cannot listen."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self._error = error

    async def serve(self, *_: Any, **__: Any) -> Server:
        """Raise the error of the operating system."""
        raise OSError(self._error, os.strerror(self._error))


def test_lack_of_files_for_listening_is_tried_again(tmp_path: Path) -> None:
    """As a lack of files for the store: the process may close some."""

    async def main() -> str:
        with use_transport(Refusing(errno.EMFILE)):
            async with application(tmp_path, tmp_path / "store") as app:
                return (await app.health()).components["bindings"].details["out"]

    reason = asyncio.run(main())
    assert reason.startswith("cannot be bound, and is tried again: binder 'rocketmq' could not start its embedded")
    assert "Too many open files. Let the process open more files" in reason
    assert "empty store" not in reason


def test_forbidden_address_fails_the_start_without_advice_about_the_store(tmp_path: Path) -> None:
    """An empty store would not help."""

    async def main() -> Exception:
        with use_transport(Refusing(errno.EACCES)):
            return await error_of_start(application(tmp_path, tmp_path / "store"))

    error = asyncio.run(main())
    assert isinstance(error, BinderError)
    assert not isinstance(error, BinderUnavailable)
    assert "Permission denied" in str(error)
    assert "empty store" not in str(error)
