"""``headrace views graph``: the sources and views of a project, and how far each version is."""
