"""What at least two serving systems share: requests, tokens, KV blocks, batches, graphs, models, step times."""
