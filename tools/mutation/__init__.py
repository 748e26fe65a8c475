"""Mutation testing: changes one thing in code that decides, and sees whether a test notices."""
