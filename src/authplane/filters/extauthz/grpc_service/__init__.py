"""The service that a filter calls: where it is, and the credentials for it."""
