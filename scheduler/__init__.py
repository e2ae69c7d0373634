"""Requests, queues, batching and the engine loop: the room is reserved, nothing is in it yet."""
