"""What type checkers must refuse: each line ends with the error that `test_typing.py` expects."""

from streamkit import Message, MessageHeaders, StreamApplication, send_to, stream_listener

app = StreamApplication()


@app.stream_listener("orders")
@send_to("receipts")
async def charge(order: int, headers: MessageHeaders) -> str:
    """A listener."""
    return str(order)


async def wrong() -> None:
    """Calls that do not fit."""
    await charge("x", MessageHeaders())  # arg-type
    await charge(1)  # call-arg
    length: int = await charge(1, MessageHeaders())  # assignment
    stream_listener(7)  # arg-type
    await app.bridge.asend(7, "x")  # arg-type
    Message(1).payload.upper()  # attr-defined
    print(length)
