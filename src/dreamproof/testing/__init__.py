"""Small studies, agents and machines that tests and benchmarks share."""
