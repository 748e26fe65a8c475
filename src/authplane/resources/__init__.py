"""Text or API objects to typed documents.

The content of files comes in; resources by kind and name go out, with every problem at its file, line, column and path.
"""
