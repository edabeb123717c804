"""The side that sends calls to devices.

A device has no access to the store. The call is on record and claimed here, as for any other tool; its command may be
sent any number of times, since the device knows a call by its record and runs it once.

    presence   which devices there are, and which of them are there now
    offered    what their tools are to agents: checked, and never less strict than the operator says
    routing    which device runs a call
    client     sends commands and hears what comes back
    executor   runs a call on a device, as any executor does
"""
