"""Randomness, for those who pass it on as an argument."""

import secrets


def random_bytes(count: int) -> bytes:
    """Return bytes that nobody can guess."""
    return secrets.token_bytes(count)
