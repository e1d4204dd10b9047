"""Figures of a study: PNG and PDF, readable in grey, one colour per arm everywhere, the same bytes each time."""
