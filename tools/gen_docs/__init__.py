"""Writes the parts of the reference pages that the code knows: commands, fields, metrics, reasons.

Pages of `docs/reference` come in, with regions between ``<!-- generated: … -->`` and ``<!-- end -->``; the pages go
out with these regions written anew. Cells that only people can write (the effect of a field) are kept.
"""
