"""Runs grpcio servers and channels whose calls pass filters, and the xDS client that configures them.

Filters or an xDS target come in; a server or a channel goes out.
"""
