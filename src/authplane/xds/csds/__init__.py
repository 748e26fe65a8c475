"""The status of a client's configuration, for those who debug.

What a client holds comes in; messages of the client status discovery service go out.
"""
