"""The commands of `toolwire`, one module each (`call` also holds `preflight`, `approvals` holds `approve`)."""
