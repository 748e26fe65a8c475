"""The cluster as a source: follows the objects of each kind, and makes documents of them.

Answers of an API server come in; changes of objects, and the next requests, go out.
"""
