"""DualPath (arXiv 2602.21548): KV cache loaded over two storage paths, and what schedules it."""
