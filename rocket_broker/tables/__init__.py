"""Topics, subscription groups and consumer offsets, kept in Apache's JSON files."""
