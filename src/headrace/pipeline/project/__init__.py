"""A project of views: its files, the definitions in them, their checks, and applying them to the catalog."""
