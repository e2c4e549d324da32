"""The paper report: pooled tables and figures on one page, beside the paper's own numbers.

`read_report_inputs` collects what the lake has, `build_report` writes the page. Nothing here trains or predicts.
"""

from uqlob_pipeline.report.inputs import ReportInputs, read_report_inputs

__all__ = ["ReportInputs", "read_report_inputs"]
