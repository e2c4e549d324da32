"""The paper report: pooled tables and figures on one page, beside the paper's own numbers.

`read_report_inputs` reads the lake, `build_report` writes the page. Training, prediction and metrics do not belong here.
"""

from uqlob_pipeline.report.report_inputs import ReportInputs, read_report_inputs

__all__ = ["ReportInputs", "read_report_inputs"]
