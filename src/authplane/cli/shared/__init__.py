"""Code that several commands share: options, file arguments, output.

Arguments and values of the products come in; checked options and printed lines go out.
"""
