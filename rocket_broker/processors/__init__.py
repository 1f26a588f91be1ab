"""What the broker does for each request, one module for a family of request codes.

A processor is given the parts it needs and has one method for each request: ``(connection, command)`` to the
response, or None when the answer comes later. It checks what the client sent, and answers what is wrong with
the code and the remark that Apache's brokers use.
"""
