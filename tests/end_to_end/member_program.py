"""An application process: a member of a group that prints each number it receives."""

MEMBER = """
import sys
from streamkit import StreamApplication

app = StreamApplication(config_location="optional:/none", args=sys.argv[1:])

@app.stream_listener("in")
async def take(number: int) -> None:
    print(number, flush=True)

app.run()
"""
