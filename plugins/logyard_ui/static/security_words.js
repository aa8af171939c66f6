// ACLs and limits as people say them; pure.

import { bytes, number } from "./format.js";

// "DESCRIBE_CONFIGS" as people write it, "DescribeConfigs".
export function spoken(operation) {
  return operation.replace(/([A-Z])([A-Z]*)_?/g, (_, first, rest) => first + rest.toLowerCase());
}

const TYPES = {
  TOPIC: ["topic", "topics"],
  GROUP: ["group", "groups"],
  TRANSACTIONAL_ID: ["transactional id", "transactional ids"],
  DELEGATION_TOKEN: ["delegation token", "delegation tokens"],
  USER: ["user", "users"],
};

// What an ACL is on: "topic orders", "all groups", "topics that begin with pay.", "the cluster".
export function resource({ type, pattern, name }) {
  if (type === "CLUSTER") return "the cluster";
  const [one, several] = TYPES[type] ?? [type, type];
  if (pattern === "PREFIXED") return `${several} that begin with ${name}`;
  return name === "*" ? `all ${several}` : `${one} ${name}`;
}

const LIMITS = {
  producer_byte_rate: (value) => `writes ${bytes(value)}/s`,
  consumer_byte_rate: (value) => `reads ${bytes(value)}/s`,
  request_percentage: (value) => `requests ${number(value)} % of a thread`,
  controller_mutation_rate: (value) => `${number(value)} changed partitions/s`,
  connection_creation_rate: (value) => `${number(value)} connections/s`,
};

export function limit([key, value]) {
  return LIMITS[key]?.(value) ?? `${key} ${number(value)}`;
}

// {producer_byte_rate: 1024, …} → "writes 1.0 KiB/s, …".
export function limits(values) {
  return Object.entries(values).sort().map(limit).join(", ");
}

// What a quota is of: "" is the default of its kind, null does not matter.
export function limited({ user, client, ip }) {
  if (known(ip)) return ip === "" ? "all other addresses" : `address ${ip}`;
  const who = known(user) && (user === "" ? "all other users" : `user ${user}`);
  const what = known(client) && (client === "" ? "all other clients" : `client ${client}`);
  return who && what ? `${who}, ${what}` : who || what || "–";
}

function known(name) {
  return name !== null && name !== undefined;
}
