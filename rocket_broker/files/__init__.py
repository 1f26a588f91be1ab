"""Files that servers keep beside the store: private, replaced as a whole, or journals of changes."""
