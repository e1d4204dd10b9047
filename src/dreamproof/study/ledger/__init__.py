"""The append-only record of a study, and the state that its replay gives."""
