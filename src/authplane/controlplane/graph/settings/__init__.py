"""Reads the settings of the whole gateway.

AuthplaneConfiguration and Contour's configuration come in; one value goes out, with its problems.
"""
