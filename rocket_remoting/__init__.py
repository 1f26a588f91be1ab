"""RocketMQ's remoting protocol: a codec without I/O, and transports beside it."""
