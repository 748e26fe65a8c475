"""HTTP clients: careful connections, pages, unix sockets.

An address comes in; one complete reply goes out, or an error.
"""
