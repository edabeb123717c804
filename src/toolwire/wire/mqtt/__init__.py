"""Messages between an orchestrator and the agents on its devices, as they are written on MQTT topics.

A topic names the agent: `evoclaw/agents/{id}/commands` goes to it; `reports`, `progress`, `status` and `capabilities`
come from it. A message is one JSON object. Its fields are those of the published format plus ours, which say whose
call it is (`record_id`, `epoch`, `attempt`), until when it may begin (`deadline`), and who says so (`signature`).

Everything here is pure: time, keys and the canonical spelling of JSON are arguments. What is wrong with a message is a
`Refused`, never an exception, since anyone who reaches the broker can write anything.
"""
