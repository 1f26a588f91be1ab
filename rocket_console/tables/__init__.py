"""Tables: one description of columns serves HTML, CSV and JSON; all rows are sorted, filtered and paged here."""
