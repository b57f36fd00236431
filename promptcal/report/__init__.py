"""Reports: finished runs in, tables, figures and one page out."""

from promptcal.report.rescoring import rescore
from promptcal.report.writing import Written, title_of, write_report

__all__ = ["Written", "rescore", "title_of", "write_report"]
