"""The status of a client's configuration, as its own service tells it to those who debug."""
