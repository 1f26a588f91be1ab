"""The processors of the broker's requests: one module for each family of request codes.

A processor takes what it needs from the `BrokerContext` and has one method for each request. The method takes
``(connection, command)`` and returns the response, steps that return the response, or None if the response is sent
later. It validates the client's data. An invalid request raises `Refusal`, with the code and the remark of Apache's
brokers.
"""
