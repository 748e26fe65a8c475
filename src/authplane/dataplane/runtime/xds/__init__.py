"""The xDS client: streams, watches and the bootstrap that says whom to ask.

Names of Listeners come in; whole configurations go out.
"""
