// What forms have in common: shared fields, initial values, and the check of what was typed. Pure.
//
// A field: {id, label, kind: text | number | flag | lines | choice, help, required, pattern, wrong, least, first,
// options: [[value, label]…] or a function of the values, when(values) → whether it is asked for, suggest: topics |
// groups | brokers (whose names are suggested), of(values) → the connection whose names these are, if it is another,
// several: whether it takes several names}.

const TOPIC = /^[a-zA-Z0-9._-]{1,249}$/;

export const topicField = {
  id: "topic",
  label: "Name",
  kind: "text",
  required: true,
  pattern: TOPIC,
  wrong: "1 to 249 letters, digits, dots, dashes and underscores",
};
export const topicsField = {
  id: "topics",
  label: "Topics",
  kind: "text",
  suggest: "topics",
  several: true,
  help: "Separated by commas or spaces.",
};
export const throttleField = {
  id: "throttle",
  label: "Throttle, bytes per second",
  kind: "number",
  least: 1,
  help: "On each broker; empty: the connection's throttle, or none.",
};

export function whole(text) {
  return text === "" || text === undefined || text === null ? undefined : Number(text);
}

export function names(text) {
  return (text ?? "").split(/[\s,]+/).filter(Boolean);
}

// Without fields that were left empty.
export function given(conf) {
  return Object.fromEntries(Object.entries(conf).filter(([, value]) => value !== undefined));
}

// What a field of kind choice offers.
export function optionsOf({ options }, values) {
  return typeof options === "function" ? options(values) : options;
}

// The initial values of a form. A choice whose options depend on the values begins empty.
export function starting(spec, values) {
  const chosen = ({ options }) => (typeof options === "function" ? "" : options[0][0]);
  const first = spec.fields.map((field) => [
    field.id,
    field.kind === "flag" ? Boolean(field.first) : field.kind === "choice" ? chosen(field) : "",
  ]);
  return { ...Object.fromEntries(first), ...values };
}

// field id → what is wrong with its value; empty where nothing is wrong.
export function wrong(spec, values) {
  const found = {};
  for (const field of spec.fields.filter((one) => !one.when || one.when(values))) {
    const value = values[field.id];
    const text = typeof value === "string" ? value.trim() : value;
    if (field.required && (text === "" || text === undefined)) found[field.id] = "This is required.";
    else if (
      field.kind === "number" &&
      text !== "" &&
      text !== undefined &&
      !(Number.isInteger(Number(text)) && Number(text) >= (field.least ?? 0))
    )
      found[field.id] = `A whole number, at least ${field.least ?? 0}.`;
    else if (field.pattern && text && !field.pattern.test(text)) found[field.id] = field.wrong;
  }
  return found;
}
