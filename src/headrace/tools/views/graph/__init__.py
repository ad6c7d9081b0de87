"""``headrace views graph``: prints the sources and views of a project, and how far each version is."""
