"""Listeners on Kafka, each a program that runs in its own process."""
