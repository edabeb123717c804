"""The hub: takes the calls of a turn through their whole journey, and turns through their steps.

Read it in the order in which things happen:

1. `turn_loop` asks `loop.step` what a turn needs next: the model, its calls, or nothing more.
2. `runtime` has the verbs: accept a reply, run its calls, execute a single call. Each takes a few lines.
3. `judging` decides about calls and makes their cards, which are written down before any of them takes effect.
4. `journey` sees each call to its one result: approval, a free slot, a claim, the run, the result on record.
5. `approvals` and `approved_files` decide about a call that needs approval; `allowance` limits what is spent.
6. `provenance` marks what an untrusted turn writes; `results` says what the model is shown.

`services` is what all of them share, and `calls` has the values that they pass to each other.

The record wins over everything. A call that has a result is never run again, and one that another process began is
never begun again blindly.
"""
