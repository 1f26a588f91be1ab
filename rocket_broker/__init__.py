"""A RocketMQ name server and broker in Python, on Apache's own protocol and file format.

`rocket_broker.embedded.EmbeddedBroker` starts both inside a running event loop. `rocket_broker.broker.Broker` and
`rocket_broker.namesrv.server.NameServer` are the two servers on their own.
"""
