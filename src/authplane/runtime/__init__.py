"""I/O that more than one product needs: clocks, processes, servers, HTTP clients, issuers' keys. Nothing here decides.

Settings come in; running servers, child processes and fetched pages go out.
"""
