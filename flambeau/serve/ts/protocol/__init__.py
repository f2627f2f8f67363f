"""Protocol between a worker and the server."""
