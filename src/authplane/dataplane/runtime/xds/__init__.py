"""The xDS client: its streams, its watches, and where it finds its bootstrap.

Names of Listeners come in; complete configurations go out, again after each change.
"""
