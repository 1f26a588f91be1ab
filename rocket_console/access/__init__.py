"""Who may do what: passwords, roles, sessions, and the audit log of what was done."""
