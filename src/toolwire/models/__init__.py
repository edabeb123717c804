"""Chat models: the providers' APIs over HTTP, the embedded local model, recordings, and how a name becomes a model."""
