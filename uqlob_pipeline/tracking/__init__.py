"""MLflow: client, outbox, runs, registered models and the served model.

The only package that talks to MLflow. Training itself belongs to `models`.
"""
