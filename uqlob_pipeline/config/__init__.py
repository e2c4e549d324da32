"""The profile: every setting, validated before anything runs, and the profiles that come with the project.

Knows no file of the lake.
"""
