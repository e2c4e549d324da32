"""The study: the paper's two empty tables, filled row by row, and how rows are compared.

Variants are described in `config/study.py`, Dagster's side is `defs/study`, the page's is `report/study_part.py`.
"""
