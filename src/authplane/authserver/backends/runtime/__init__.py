"""What backends need of the world: users in files, hashing beside the loop, external services, current policies.

Folders and settings come in; backends go out.
"""
