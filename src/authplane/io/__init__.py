"""The only package that touches the world."""
