"""The read-only dashboard: studies in a browser, and the same data as a JSON API. Nothing here writes to a study."""
