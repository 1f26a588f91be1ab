"""Files beside the store: private files, tables that are replaced as a whole, and journals of changes."""
