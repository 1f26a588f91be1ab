"""``python -m streamkit.cli``: the command ``streamkit`` where its script is not on the path."""

from streamkit.cli import PROGRAM, main

main(prog_name=PROGRAM)
