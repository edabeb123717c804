"""The one door to the network: rules, addresses that may be reached, connections, and the proxy for boxes."""
