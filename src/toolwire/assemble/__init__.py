"""From settings to a store, a toolbox and an agent: what every entry point builds its agents with.

`open_project` reads the settings of a folder; `stores`, `tools`, `grants` and `models` make the parts of an agent from
them; `agents` puts the parts together.
"""
