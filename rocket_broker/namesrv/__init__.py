"""The name server: tells clients which brokers have a topic, and nothing else."""
