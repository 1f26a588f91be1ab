"""Assembly: the registrations of an application, and the bindings and handlers made of them."""
