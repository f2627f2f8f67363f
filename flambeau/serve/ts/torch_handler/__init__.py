"""The handlers a server has built in."""
