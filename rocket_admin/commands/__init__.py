"""The commands of ``streamkit`` that administer a RocketMQ cluster, one file for each group of commands.

A command reads its options, calls `rocket_admin`, and prints. `connection_options.py` has the options that say which
cluster, `output.py` those that say how to print. What is slow to import is imported when a command runs, and rich only
when there is a table to print.
"""
