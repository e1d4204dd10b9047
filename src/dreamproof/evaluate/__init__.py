"""Complete episodes on the true reward and cost, of checkpoints that were truly trained."""
