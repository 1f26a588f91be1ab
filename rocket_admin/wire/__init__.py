"""What clients and servers say to each other on the wire, explained command by command.

`conversation.py` explains the commands of one connection, and `proxy.py` stands between clients and a cluster.
"""
