"""How pages are written: the templates, and values as text."""
