"""Topics, subscription groups and consumer offsets, as they are kept in Apache's JSON files."""
