"""Commands for authors of resources, at work on files: `fmt` and `schema`.

Paths and options come in; formatted files, differences and schemas go out.
"""
