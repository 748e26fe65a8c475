"""Text to typed documents: every problem with its file, line, column and field path."""
