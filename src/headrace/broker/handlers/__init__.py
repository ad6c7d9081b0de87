"""One file an API. The folder listing is the table of what is answered."""
