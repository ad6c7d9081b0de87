"""Makes the generated pages of ``docs/`` from the registries: ``python -m headrace.tools.docs FOLDER``."""
