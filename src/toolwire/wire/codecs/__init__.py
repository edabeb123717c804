"""Our own values as JSON and back: for the store, for events, for a call that travels."""
