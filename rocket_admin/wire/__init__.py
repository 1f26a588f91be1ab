"""What clients and servers say to each other on the wire, explained command by command.

`conversation.py` explains the commands of one connection. `proxy.py` stands between clients and a cluster, and
`capture.py` reads a file: `capture_file.py` its packets, `segments.py` what TCP has in them, `reassembly.py` puts the
bytes in order, and `captured_frames.py` cuts them into commands.
"""
