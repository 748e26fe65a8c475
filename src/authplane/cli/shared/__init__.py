"""What commands share: options, files to read, ways to print.

Each command takes what it needs.
"""
