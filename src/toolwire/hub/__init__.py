"""The hub: takes the calls of a turn through their whole journey, and turns through their steps.

Read it in the order in which things happen:

1. `turn_loop` asks `loop.step` what a turn needs next: the model, its calls, or nothing more.
2. `runtime` accepts a reply: its calls are judged, and written down with the reply before any of them runs.
3. `journey` sees each call to its one result: approval, a free place, the run, the result on record.
4. `approvals` and `approved_files` decide about a call that needs approval; `allowance` limits what is spent.
5. `provenance` marks what an untrusted turn writes; `results` says what the model is shown.

The record wins over everything. A call that has a result is never run again, and one that another process began is
never begun again blindly.
"""
