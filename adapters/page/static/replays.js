// What a conversation has left out since runs were run again. Pure: replays and items in, items out.
// Each replay goes on from a place further up in the log, and leaves out all that stands between that place and itself.

/** The items, marked with whether they are left out; each stretch of those begins with an item that says so. */
export function marked(items, replays) {
  const { stretches } = branch(replays);
  const begun = new Set();
  return items
    .filter((item) => item.type !== "left")
    .flatMap((item) => {
      const stretch = stretches.find(({ after, upto }) => after < item.at && item.at < upto);
      const same = Boolean(stretch) === Boolean(item.left) ? item : { ...item, left: Boolean(stretch) };
      if (!stretch || begun.has(stretch)) return [same];
      begun.add(stretch);
      return [{ id: `left ${stretch.upto}`, type: "left", at: item.at, left: true }, same];
    });
}

/** The checkpoint whose place has to be known before more can be said, or null. */
export const unplaced = (replays) => branch(replays).unplaced?.checkpoint ?? null;

/** Go back from the newest replay, from each to the place that it goes on from; those in between were left themselves. */
function branch(replays) {
  const stretches = [];
  let upto = Infinity;
  for (const replay of replays.toReversed()) {
    if (replay.seq > upto) continue;
    if (replay.after === null) return { stretches, unplaced: replay };
    stretches.push({ after: replay.after, upto: replay.seq });
    upto = replay.after;
  }
  return { stretches, unplaced: null };
}
