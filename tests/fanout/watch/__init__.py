"""An exhaustive model of the watch: every state within small bounds, and every guard taken away once.

What runs in it is the product's own code wherever nothing waits: `Topic`, `Watcher`, `outlook`, `merge` and `accept`,
the steps of `Hub` (`_enter`, `_leave`, `_hear`, `_catch_up`, `_rest`, `_reset`, `_set_head`), the reading of
`Backlogs`, and `MemoryLive`, which keeps the contract of the scripts on Redis. A step takes these objects out of a
state, does what the code does between two awaits, and puts them back. `world` holds the state, `moves` the steps,
`judge` the promises, `guards` what is taken away, and `table` the bounds.

Written anew here are the loop of `Hub.watch`, the beginning of a watch, the order of subscriptions, the loops that
read heads, facts and tops, and the outbox (it numbers, keeps back, drops, and falls silent). The property tests
beside this package drive the real ones; `play` holds what they share.

Modelled:

- the attempts of one thread, one after the other, or one that takes over while its predecessor goes on sending;
  facts between live frames, by the attempt and by others; closing facts that name the last live frame, and those of a
  lapse, which do not;
- the stream: capped, trimmed, flushed, or full of frames of a future that the database has lost;
- the subscription: confirmed, lost with what is under way, made anew, given up with the last watcher; single messages
  that are lost or come twice; doorbells that are never rung;
- an outbox that sends late, after the closing fact too, or drops frames;
- readings of Postgres and Redis that are old when they are used; pages that are cut; Redis away for one reading;
- a log that is pruned, or set back by a failover;
- watchers that join at any time, are slow, overflow, leave, and come back with their cursor.

Not modelled: time (a timer is a step that may be taken whenever it may), several threads, the sizes of queues in
characters, the sharing of one reading by several watchers, kinds of frames that were not asked for, Postgres away, and
closing. Reading the newest fact for a reset, or the top of the stream, takes no time. Heads are read only when that
could make a difference, so `head` frames are few. After the log was set back, facts and frames that carry numbers of
the lost future are not judged by their content. The live frames of an attempt that lapsed may be missing at its
end without a mark if the stream has lost them, since no fact names the last one.
"""
