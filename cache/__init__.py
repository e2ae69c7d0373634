"""The paged KV cache in integers: blocks, tables, keys, reference counts, eviction.

Imports no torch; tensors live one level up (`cache.store` is the one exception allowed by the layering test).
"""
