"""Clients that are measured, each a program that runs in its own process and obeys `benchmarks.peers.worker`."""
