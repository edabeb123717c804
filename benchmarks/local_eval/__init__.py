"""The evaluation of the embedded model: requests and tools written for it alone, how they are put, how they are judged.

Requests lie in one `.jsonl` file a group, invented tools in `tools.json`; the tools of the seed systems come from
`training/seed_tools.json`. Nothing here may be used for training.

A line holds what a person says (`say`), the calls that are right (`calls`, and `then` for calls that need their
results), each as tool, arguments and the result it is given, and what the answer must tell (`answer`; of a list in it
any one). `with` names further tools to offer, `avoid` tools not to offer, `before` what was said earlier, `never` what
the answer must not say; with `admit` the answer must own up to the failure. Arguments may be written as

    "≈text"                  the text, whatever its case, spacing and outer punctuation
    {"any": [a, b, null]}    one of these; null: may be left out
    {"set": [a, b]}          these, in any order
    {"words": ["a", "b"]}    a text that contains all of these
    {"value": 12}            an arithmetic expression of this value
    {"free": true}           anything, or nothing
"""
