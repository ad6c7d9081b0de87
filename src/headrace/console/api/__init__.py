"""Makes JSON of what pages read, and the OpenAPI document of both registries."""
