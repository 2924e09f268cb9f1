"""What clients may send: one module per resource, checked by pydantic and shown in the OpenAPI file."""
