"""How a worker and the server talk."""
