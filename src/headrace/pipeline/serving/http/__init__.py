"""Answers queries by HTTP: the server, what a request asks for, and how an answer is sent."""
