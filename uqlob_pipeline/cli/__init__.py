"""The `uqlob` command: one module per command, and the planning and running of what the terminal requests.

The work itself belongs to the packages below.
"""
