// Package authority holds the rules of Berth: who may write a workspace, who may read it, and
// what a task is bound to.
//
// # The state of a workspace
//
// A workspace's authority is one row: an epoch, the run that writes (or none), the snapshot that
// is its saved state, where the writer's files are, and whether they may differ from what is
// saved. The interval in which one run is the writer, at one epoch, is a tenure.
//
//	         reserve: epoch +1, writer = run
//	free ────────────────────────────────────▶ held, clean
//	 ▲ ▲                                        │      ▲
//	 │ └──────────── release, finish ───────────┤ dirty│ save
//	 │                                          ▼      │
//	 └──── release or finish with discard ──── held, dirty
//
// A writer whose run ended leaves the workspace held. It becomes free again only when the work
// is saved and every machine of the run is proven stopped (a handover, to the next reservation),
// or when an operator takes the responsibility (a takeover).
//
// # What a reservation promises
//
//   - At every instant at most one run is the writer, whatever route led to it.
//   - The epoch of a tenure is larger than every epoch before it and is never used again.
//   - No statement of an older epoch changes the document afterwards: each fenced write compares
//     run and epoch in the row that it changes, when it commits.
//   - The files that the next writer gets are the last committed snapshot.
//   - Those who wait are granted in the order of arrival, as long as they are there when their turn
//     comes; a newcomer does not pass them.
//
// # What it does not promise
//
//   - That a process which lost its tenure has stopped. Its writes to Berth are refused; what it
//     does elsewhere only its machine's end can stop. Hence proof before a handover, and "unproven"
//     on record where an operator went on without it.
//   - That a silent writer is gone. Silence is shown and never acted on: nobody gets in because
//     time passed.
//
// # How a decision is made
//
// Every decision goes the same way: lock the rows it rests on, in the order task, workspace, run;
// load the facts in a later statement; let one pure function decide; act by a statement that is
// guarded by the columns it changes. Reserve and explain share the function, so they cannot
// disagree.
package authority
