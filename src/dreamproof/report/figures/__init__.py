"""Figures of a study: PNG and PDF, readable in grey, one colour an arm everywhere, the same bytes each time."""
