"""Options of the tests' JVMs."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Spark's code runs a few times each here: compiling it well takes longer than it saves, a third of all CPU seconds."""
