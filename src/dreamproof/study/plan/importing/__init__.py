"""Runs made outside a study: finding them, assessing them, and what is recorded about them."""
