"""The wiring: socket, frame, request queue, handler, log, response."""
