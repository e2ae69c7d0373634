"""Requests, queues, batching, preemption and the engine loop: all decisions in integers.

    arrivals ──> Waiting ──admit──> running: prefilling ──> decoding ──> finished
                    ^                     │
                    └──── preempted ──────┘   (recompute: back to Waiting · swap: to the swapped queue)

`scheduler.py` decides, an executor does (`torch_executor.py` with a model, `simulated.py` with a clock), `loop.py`
drives both. Only `torch_executor.py` knows tensors.
"""
