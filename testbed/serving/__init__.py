"""What at least two serving systems share: requests, tokens, KV blocks, batches, graphs, models and their step times."""
