"""The tool protocol of the fleet, as messages and cards. Pure: no I/O, no clock, no ids of its own.

A call travels as a command: who calls (agent, turn, epoch, step, call) and a pointer to the `tool.call` card in which
the arguments are. What comes back is a callback: the same identity and a pointer to the `tool.result` card. Neither
ever carries arguments or results, so a message can be lost, repeated or forged without a call being run with other
arguments than those on record.

The identity stands in the payload and in `CG-*` headers, because the published protocol names the fields in the payload
while its implementation reads the headers. Both are written; either is enough to read; two that differ are refused.

Reading never raises. What is wrong with a message is a `Refusal`, with everything about it that could be read, from
which a result can be written (`refusal_card`). Unknown fields are kept and ignored. Time is linear in the size of a
message, and the size is bounded before anything is parsed.
"""
