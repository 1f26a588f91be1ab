"""The book's example of an order and its stock (section 9.5): two services, two databases, one transaction."""
