"""How a record is shown to a model: which parts of its context, and what is made of them.

`reading` turns the hints of a record into values, `paths` and `filters` choose parts, `transforms` make new fields, and
`view` puts them together. Nothing here limits how long a foreign engine (templates, JSONPath, jq) may run: hints that
need one are evaluated in a process that can be ended; see `breadcrumbs/hint_process.py`.
"""
