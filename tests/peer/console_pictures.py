"""`python -m tests.peer.console_pictures`: write the pictures of the console that the docs show, in about two minutes.

They show a restaurant on a broker of its own while guests order.
"""

import asyncio
import io
import math
import tempfile
from contextlib import ExitStack, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Producer, ProducerSettings
from tests.peer.chromium import Chromium, Visitor
from tests.peer.console_stage import ORDERS, ConsoleStage, console_stage, order

_FOLDER: Final = Path(__file__).parents[2] / "docs" / "console"
_LARGEST: Final = 60 * 1024
"""Bytes of a picture."""
_QUALITIES: Final = (85, 70, 55)
"""The first that makes a picture small enough is taken."""
_RUSH: Final = 60.0
"""Seconds of orders: so much of the charts is filled."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture of a page.

    Attributes:
        name: The name of its file.
        address: The page, with the parameters of the stage.
        scheme: `light` or `dark`.
        width: Pixels of the window.
        height: The most pixels that are shown.
    """

    name: str
    address: str
    scheme: str = "light"
    width: int = 1100
    height: int = 680

    def take(self, stage: ConsoleStage, browser: Chromium) -> None:
        """Write the file.

        Raises:
            ValueError: The file would be too large.
        """
        with browser.visitor(stage.console.url, width=self.width) as visitor:
            visitor.page.emulate_media(color_scheme=self.scheme)  # type: ignore[arg-type]
            visitor.open(stage.address(self.address))
            self._write(visitor)

    def _write(self, visitor: Visitor) -> None:
        end = visitor.page.evaluate("Math.ceil(document.querySelector('main').getBoundingClientRect().bottom)")
        clip = {"x": 0, "y": 0, "width": self.width, "height": min(self.height, end)}
        shot = visitor.page.screenshot(clip=clip, full_page=True)  # type: ignore[arg-type]
        for quality in _QUALITIES:
            written = io.BytesIO()
            Image.open(io.BytesIO(shot)).convert("RGB").save(written, "WEBP", quality=quality, method=6)
            if len(written.getvalue()) <= _LARGEST:
                (_FOLDER / f"{self.name}.webp").write_bytes(written.getvalue())
                return
        raise ValueError(f"{self.name} has {len(written.getvalue()):,} bytes, more than {_LARGEST:,}: show less")


PICTURES: Final = (
    Picture(name="overview", address="/", height=860),
    Picture(name="topic", address="/topics/{topic}/messages?messages.rows=10"),
    Picture(name="group", address="/groups/{idle}", scheme="dark"),
    Picture(name="message", address="/messages/{failed}"),
    Picture(name="story", address="/messages/{failed}/story"),
    Picture(name="dead-letters", address="/dead-letters/{group}?letters.rows=10"),
    Picture(name="half-messages", address="/half-messages"),
    Picture(name="outbox", address="/outbox?messages.rows=20&messages.status=CONFIRMATION_RETRIES_EXCEEDED"),
    Picture(name="narrow", address="/groups/{group}", scheme="dark", width=390, height=844),
)


async def rush_hour(name_server: str, topic: str, seconds: float) -> None:
    """Send orders, sometimes many and sometimes few."""
    loop = asyncio.get_running_loop()
    begin, number = loop.time(), ORDERS
    async with Producer("till", ProducerSettings(name_servers=name_server)) as producer:
        while (passed := loop.time() - begin) < seconds:
            await producer.send(order(topic, number))
            number += 1
            await asyncio.sleep(1 / (25 + 18 * math.sin(passed / 9) + 6 * math.sin(passed / 2.3)))


def main() -> None:
    """Open the restaurant, wait until the charts show something, and write all pictures."""
    _FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        chdir(directory),  # pictures show the path of the outbox
        ThreadedBroker(settings={"messageDelayLevel": "1s 1s 3s 4s" + 14 * " 5s"}) as broker,
        console_stage(broker.name_server, Path(), redeliveries=2, client_ip="10.0.0.7", has_outbox=True) as stage,
        Chromium() as browser,
        ExitStack() as windows,
    ):
        for address in ("/", "/groups/{idle}", "/groups/{group}"):
            windows.enter_context(browser.visitor(stage.console.url)).open(stage.address(address))
        stage.portal.call(rush_hour, broker.name_server, stage.names["topic"], _RUSH)
        for picture in PICTURES:
            picture.take(stage, browser)


if __name__ == "__main__":
    main()
