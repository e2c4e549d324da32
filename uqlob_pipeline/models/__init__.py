"""`uqlob_models` applied to the lake's files: inputs, training, predictions and evaluation.

The mathematics belongs to `uqlob_models`, Dagster to `defs`, MLflow to `tracking`.
"""
