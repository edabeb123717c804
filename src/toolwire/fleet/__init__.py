"""Where the bus and the store meet: calls are sent to workers anywhere, and turns are woken when results are there.

The store is the truth. A message on the bus is a doorbell that says where to look; it may be lost, doubled or late.

    dispatcher  keeps how a call is sent, in the store
    relay       sends what is due, again and again, until it has a result
    worker      reads the card that a command names, claims the call, runs it, and writes its result
    wakeups     tell the processes that run turns that a result is there
"""
