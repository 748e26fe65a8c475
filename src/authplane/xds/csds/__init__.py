"""The client status discovery service: it shows the configuration of an xDS client.

A client's resources come in; messages without secrets go out.
"""
