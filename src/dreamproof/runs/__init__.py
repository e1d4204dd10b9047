"""The on-disk contract between a trainer and the campaign: where things lie and what they say."""
