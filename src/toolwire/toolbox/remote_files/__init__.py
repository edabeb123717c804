"""Files of another machine: the client, the server that runs there, and the transports between them."""
