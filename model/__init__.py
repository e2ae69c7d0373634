"""A decoder of the Llama family over paged KV tensors: config, weights, layers, backends, sampling, tokenizer."""
