"""The question to an authorization service, and its answer."""
