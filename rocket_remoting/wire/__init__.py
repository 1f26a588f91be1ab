"""The protocol's bytes: frames, headers, bodies, records, properties. Nothing here does I/O."""
