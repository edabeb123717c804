"""Spans and metrics of turns and calls, for OpenTelemetry and Prometheus; needs the extra `toolwire[telemetry]`.

    identifiers     trace and span ids that every process computes alike
    conventions     what spans say, under the names of the `gen_ai.*` conventions
    traces          events of turns as spans: `TurnTracer`
    exporting       where spans go, by settings and `OTEL_*` variables
    metrics         events of turns as metrics: `Metrics`
    store_metrics   how changes of the store go, and what it says about all processes
    worker_calls    spans and metrics of calls that a worker runs for others
    process         what one process tells: spans, metrics, or both

Nothing is imported here, so that a program without the extra can name the package. What happens in a turn is told by
the events that it has anyway (`hub.event_hub`); no code of a turn calls into this package.
"""
