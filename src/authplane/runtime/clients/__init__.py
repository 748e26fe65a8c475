"""What our clients share: careful connections, pages, unix sockets.

An address comes in; one whole reply goes out, or an error.
"""
