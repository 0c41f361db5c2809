// JSON for people who decide on it: what they see is what is there, and what they send back is what they saw.

// What cannot be seen, or makes its neighbours look different from what they are. The forms over MCP spell out the same.
const HIDDEN = /[\u007f-\u009f\u2028\u2029\ufff9-\ufffb\p{Default_Ignorable_Code_Point}]/gu;

/** Read a text; a number with more digits than JavaScript keeps stays as it was written, where the browser can. */
export function read(text) {
  return JSON.parse(text, (key, value, context) =>
    typeof value === "number" && JSON.rawJSON && context?.source !== String(value)
      ? JSON.rawJSON(context.source)
      : value,
  );
}

/** A value as text that hides nothing. */
export function json(value) {
  return (JSON.stringify(value, null, 2) ?? "").replace(HIDDEN, spelled);
}

const spelled = (sign) =>
  sign.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
