"""Tries matcher trees on described calls, for `authplane match`.

Files with a tree and with calls come in; the branch that each call takes goes out, with the reason.
"""
