"""The paper's model, losses, context, training and metrics in plain PyTorch and NumPy.

Knows no partition, no file of the lake, no Dagster and no MLflow.
"""
