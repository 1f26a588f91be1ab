"""The codec: frames, headers, bodies, records, properties. It does no I/O."""
