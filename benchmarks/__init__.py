"""Benchmarks: throughput, CPU, latency and memory on the bundled broker, on Apache's brokers and in memory.

`make bench` runs all of it in one go, so that figures stand side by side under the same load of the machine.
Wall-clock rates move with that load; CPU per message and the ratios between rows are what to compare.
"""
