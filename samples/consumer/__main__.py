"""`python -m samples.consumer`: a process that prints each message and when it came."""

from pathlib import Path

from streamkit import Sink, StreamApplication

app = StreamApplication(Sink, config_location=Path(__file__).parent)


@app.stream_listener(Sink.INPUT)
def receive(text: str) -> None:
    """Print one message."""
    print(f"TopicTest receive: {text}，receiveTime = {app.clock.now_ms()}", flush=True)


if __name__ == "__main__":
    app.run()
