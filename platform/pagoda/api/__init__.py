"""The REST API: the wire format of OpenAI's API at /v1, over this installation's engines."""
