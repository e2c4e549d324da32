"""The drill: kills, starves and corrupts tiny lakes, and compares the results with an undisturbed lake.

Nothing else imports it.
"""
