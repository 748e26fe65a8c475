"""Configurations of extensions, which are filters for the most part."""
