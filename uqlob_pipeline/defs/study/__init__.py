"""The study group: the rows of the paper's two empty tables."""
