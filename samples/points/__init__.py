"""An order, its stock and its points: three services, three databases, and what undoes their work."""
