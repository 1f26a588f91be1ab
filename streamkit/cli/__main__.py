"""``python -m streamkit.cli``: the command ``streamkit``, for environments without its script on the path."""

from streamkit.cli import PROGRAM, main

main(prog_name=PROGRAM)
