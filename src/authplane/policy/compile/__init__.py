"""AccessPolicy documents to rules.

Documents and settings come in; policies with every problem and status go out.
"""
