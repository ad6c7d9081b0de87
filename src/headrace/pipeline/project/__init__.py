"""A project of views: reads its files into definitions, and applies the definitions to the catalog."""
