"""What operators ask when something is wrong: doctor and decisions.

Running parts are asked; rows for people go out.
"""
