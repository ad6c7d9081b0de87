"""The HTTP API of the registry: routes, and an ASGI application."""
