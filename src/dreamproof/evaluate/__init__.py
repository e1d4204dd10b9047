"""Complete episodes of trained checkpoints, with the true reward and cost."""
