"""The name server, which tells clients which brokers have a topic."""
