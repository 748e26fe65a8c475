"""Traces which rules and entries a decision tried.

Steps come in while a request is decided; a tree that people can read goes out.
"""
