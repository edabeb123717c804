"""Doorbells between processes: in this process, or by way of NATS JetStream.

A message only says that there is something to look at; what that is, and whether it was done, is in the store. So a bus
promises little: a message that was confirmed is delivered to every durable name that wants it, at least once and in no
particular order, unless the broker loses it. A receiver must be right if one comes twice, late or not at all.
"""
