"""What a person looks at after a comparison: a table on the terminal, and a page with the curves and what they mean."""

from sottovoce.report.entries import Entry, table
from sottovoce.report.page import write
from sottovoce.report.words import headline

__all__ = ["Entry", "headline", "table", "write"]
