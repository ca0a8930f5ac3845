"""The task queue: order and execution. Computes no budget."""
