"""Agents on devices: the process on the device, and what an orchestrator does to use its tools.

Commands and reports travel over an MQTT broker (`link`), written and read by `wire.mqtt`. A command may be lost, late,
repeated or forged, and so may a report. So the device keeps a journal of the calls that it has accepted and runs each
once, the orchestrator sends a command again until a report has come, and both check signatures.
"""
