"""The RocketMQ binder: channels on the bundled broker or on a cluster of Apache RocketMQ.

plugin.py               offers the binder type to the framework
binder.py               connects and makes bindings
name_servers.py         finds the name servers, or starts an embedded broker
discovery.py            asks the brokers for their capabilities
producer.py             sends messages
transactions.py         sends half messages, which a local transaction commits or rolls back
consumer.py             receives messages and passes them to the framework
polled.py               receives messages that the application polls
groups.py               subscriptions of groups, and the first offsets of new groups
headers.py              maps headers to properties on the wire and back
properties.py           settings, in the spellings of both generations of Spring Cloud Alibaba's binder
client_settings.py      translates the settings to those of `rocket_client`
encryption.py           settings of TLS, for the clients and for Spark
spark.py                options with which Spark reads and writes destinations itself
"""
