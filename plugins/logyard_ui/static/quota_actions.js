// The actions on limits of users, clients and addresses. Pure; `actions.js` describes a spec.

import { limit, limited } from "./security_words.js";

const RATES = [
  ["producer_byte_rate", "Writes, bytes per second"],
  ["consumer_byte_rate", "Reads, bytes per second"],
  ["request_percentage", "Requests, percent of a thread"],
  ["controller_mutation_rate", "Changed partitions per second"],
];
const OF = {
  user: ["user"],
  client: ["client"],
  "user and client": ["user", "client"],
  ip: ["ip"],
};
// What the limits are of is asked for where they are new.
const named = (kind) => (values) => !values.before && OF[values.of].includes(kind);
const rate = ([id, label], when) => ({
  id,
  label,
  kind: "text",
  when,
  pattern: /^(?!0+(\.0+)?$)\d{1,19}(\.\d{1,6})?$/,
  wrong: "a number above 0",
  help: "Empty: no limit.",
});

function entityOf(values) {
  const kinds = OF[values.of];
  const name = (id) => (kinds.includes(id) ? (values[id] ?? "").trim() : null);
  return { user: name("user"), client: name("client"), ip: name("ip") };
}

// What differs from `before` (key → number): null for what is removed.
function limitChanges(values) {
  const keys = values.of === "ip" ? ["connection_creation_rate"] : RATES.map(([key]) => key);
  const found = {};
  for (const key of keys) {
    const text = String(values[key] ?? "").trim();
    const before = values.before?.[key];
    if (text === "" ? before !== undefined : Number(text) !== before) found[key] = text === "" ? null : Number(text);
  }
  return found;
}

function quotaConf(values, limits) {
  const entity = Object.entries(entityOf(values)).filter(([, name]) => name !== null);
  return { of: values.of, ...Object.fromEntries(entity), limits };
}

// The values of the form for a quota that exists.
export function quotaValues({ limits, ...entity }) {
  const kinds = ["user", "client", "ip"].filter((kind) => typeof entity[kind] === "string");
  const typed = Object.fromEntries(Object.entries(limits).map(([key, value]) => [key, String(value)]));
  return { of: kinds.join(" and "), ...entity, ...typed, before: limits };
}

export const setQuota = {
  dag: "alter_quotas",
  title: (values) => (values.before ? `Limits of ${limited(entityOf(values))}` : "Set limits"),
  start: "Set them",
  fields: [
    {
      id: "of",
      label: "Of",
      kind: "choice",
      when: ({ before }) => !before,
      options: [
        ["user", "a user"],
        ["client", "a client id"],
        ["user and client", "a user with a client id"],
        ["ip", "an address"],
      ],
    },
    { id: "user", label: "User", kind: "text", when: named("user"), help: "Empty: all other users." },
    { id: "client", label: "Client id", kind: "text", when: named("client"), help: "Empty: all other clients." },
    { id: "ip", label: "Address", kind: "text", when: named("ip"), help: "Empty: all other addresses." },
    ...RATES.map((one) => rate(one, ({ of }) => of !== "ip")),
    rate(["connection_creation_rate", "New connections per second"], ({ of }) => of === "ip"),
  ],
  check: (values) => (Object.keys(limitChanges(values)).length === 0 ? "No limit is changed yet." : ""),
  conf: (values) => quotaConf(values, limitChanges(values)),
  say: (values) => [
    `Limits of ${limited(entityOf(values))} on each broker:`,
    ...Object.entries(limitChanges(values)).map(([key, value]) =>
      value === null ? `${key}: no limit any more` : limit([key, value]),
    ),
    "Limits that are not named here stay.",
  ],
};

export const removeQuota = {
  dag: "alter_quotas",
  title: "Remove limits",
  start: "Remove them",
  danger: true,
  fields: [],
  conf: (values) => quotaConf(values, Object.fromEntries(Object.keys(values.before).map((key) => [key, null]))),
  say: (values) => [
    `The limits of ${limited(entityOf(values))} are removed: ${Object.entries(values.before).map(limit).join(", ")}.`,
    "The default of its kind counts then, if there is one.",
  ],
};
