"""Plans, launches, watches, diagnoses and counts; never imports JAX."""
