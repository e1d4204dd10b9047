"""The on-disk contract between a trainer and the campaign: file locations and records."""
