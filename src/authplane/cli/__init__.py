"""The command `authplane`, one file a command.

Arguments come in; text for people or JSON for programs goes out.
"""
