"""Writes folders to start with: `authplane init`.

Answers or a folder of Contour's resources come in; a folder that `authplane validate` accepts goes out.
"""
