"""The admin client: one module per subject (topics, configs, groups, ...), joined by ``async_admin``."""
