"""Tests a tool service of any language over a real broker: what it does with good commands, and with bad ones.

The kit plays all other parts. It sends commands, serves the cards that they point to (`endpoint`), takes result cards
and listens for callbacks. Each case (`cases`) is one call with an id of its own, by which what a service did about it
is found; `findings` says what is wrong with that. The order in which a service works does not matter.
"""
