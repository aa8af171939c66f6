// The actions on ACLs: single ones, and those of producers and consumers. Pure; `actions.js` describes a spec.

import { given, names } from "./forms.js";
import { resource, spoken } from "./security_words.js";
import { passwordField, userField } from "./user_actions.js";

const accessFields = [
  userField,
  { id: "writes", label: "Writes topics", kind: "text", suggest: "topics", several: true, help: "* is every topic." },
  { id: "reads", label: "Reads topics", kind: "text", suggest: "topics", several: true },
  { id: "groups", label: "In groups", kind: "text", suggest: "groups", several: true },
  { id: "transactional_ids", label: "Transactional ids", kind: "text" },
  { id: "prefixed", label: "These names are prefixes", kind: "flag" },
];

function accessConf(values) {
  return {
    user: values.user.trim(),
    writes: names(values.writes),
    reads: names(values.reads),
    groups: names(values.groups),
    transactional_ids: names(values.transactional_ids),
    prefixed: Boolean(values.prefixed),
  };
}

// One sentence for each kind of name.
function accessSaid(values) {
  const of = values.prefixed ? "whose names begin with " : "";
  return [
    ["writes", "Writes topics"],
    ["reads", "Reads topics"],
    ["groups", "Reads in groups"],
    ["transactional_ids", "Writes with transactional ids"],
  ]
    .filter(([field]) => names(values[field]).length > 0)
    .map(([field, text]) => `${text} ${of}${names(values[field]).join(", ")}.`);
}

const nothingNamed = (values) => accessSaid(values).length === 0;

export const grantAccess = {
  dag: "grant_access",
  title: "Grant access",
  start: "Grant it",
  fields: [
    ...accessFields,
    { ...passwordField, required: false, help: `${passwordField.help} Empty: the user can log in already.` },
  ],
  check: (values) =>
    nothingNamed(values) && !values.password_connection?.trim() ? "Name what the user writes or reads." : "",
  conf: (values) =>
    given({ ...accessConf(values), password_connection: values.password_connection?.trim() || undefined }),
  say: (values) => [
    `User ${values.user} gets the ACLs that producers and consumers need.`,
    ...accessSaid(values),
    values.password_connection?.trim()
      ? `If the user has no password, it gets that of the connection ${values.password_connection.trim()}.`
      : "No password is set.",
  ],
};

export const revokeAccess = {
  dag: "revoke_access",
  title: "Revoke access",
  start: "Revoke it",
  danger: true,
  fields: [
    ...accessFields,
    { id: "remove_limits", label: "Also remove the user's limits", kind: "flag" },
    { id: "delete_user", label: "Also delete the user's passwords", kind: "flag" },
  ],
  check: (values) =>
    nothingNamed(values) && !values.remove_limits && !values.delete_user ? "Name what the user loses." : "",
  type: (values) => values.user.trim(),
  conf: (values) => ({
    ...accessConf(values),
    remove_limits: Boolean(values.remove_limits),
    delete_user: Boolean(values.delete_user),
  }),
  say: (values) =>
    [
      `User ${values.user} loses the ACLs that producers and consumers need, as far as they are exactly these.`,
      ...accessSaid(values),
      values.remove_limits && "Its limits are removed.",
      values.delete_user && "Its SCRAM passwords are deleted: it cannot log in with them any more.",
    ].filter(Boolean),
};

const KINDS = [
  ["TOPIC", "topics"],
  ["GROUP", "groups"],
  ["CLUSTER", "the cluster"],
  ["TRANSACTIONAL_ID", "transactional ids"],
  ["DELEGATION_TOKEN", "delegation tokens"],
  ["USER", "users"],
];
// What Kafka's tool lets one grant on each (logyard/admin/acls/acls.py).
export const OPERATIONS = {
  TOPIC: ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"],
  GROUP: ["READ", "DELETE", "DESCRIBE", "ALL"],
  CLUSTER: [
    ...["CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"],
    ...["DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALL"],
  ],
  TRANSACTIONAL_ID: ["WRITE", "DESCRIBE", "ALL"],
  DELEGATION_TOKEN: ["DESCRIBE", "ALL"],
  USER: ["CREATE_TOKENS", "DESCRIBE_TOKENS", "ALL"],
};

// An ACL as the DAG takes it.
function aclConf({ type, name, pattern, principal, operation, host, permission }) {
  const on = { [type.toLowerCase()]: type === "CLUSTER" ? "kafka-cluster" : name };
  return { ...on, pattern, principal, operation, host, permission };
}

function aclOf(values) {
  return {
    type: values.type,
    name: values.name?.trim() ?? "",
    pattern: values.type !== "CLUSTER" && values.prefixed ? "PREFIXED" : "LITERAL",
    principal: values.principal.trim(),
    operation: values[`operation_${values.type}`],
    host: values.host?.trim() || "*",
    permission: values.permission,
  };
}

function aclSaid({ principal, host, permission, operation, ...on }) {
  const may = permission === "DENY" ? "may not" : "may";
  return `${principal} ${may} do ${spoken(operation)} on ${resource(on)}, from ${host === "*" ? "anywhere" : host}.`;
}

export const addAcl = {
  dag: "alter_acls",
  title: "Add an ACL",
  start: "Add it",
  fields: [
    {
      id: "principal",
      label: "Who",
      kind: "text",
      required: true,
      pattern: /^\s*[^:\s]+:.+$/,
      wrong: "a principal such as User:alice; User:* is everybody",
      help: "User:alice; User:* is everybody.",
    },
    {
      id: "permission",
      label: "May or may not",
      kind: "choice",
      options: [
        ["ALLOW", "may"],
        ["DENY", "may not, whatever else allows it"],
      ],
    },
    { id: "type", label: "On", kind: "choice", options: KINDS },
    {
      id: "name",
      label: "Name",
      kind: "text",
      required: true,
      when: ({ type }) => type !== "CLUSTER",
      help: "* is all of them.",
    },
    { id: "prefixed", label: "The name is a prefix", kind: "flag", when: ({ type }) => type !== "CLUSTER" },
    ...KINDS.map(([type]) => ({
      id: `operation_${type}`,
      label: "Operation",
      kind: "choice",
      when: (values) => values.type === type,
      options: OPERATIONS[type].map((operation) => [operation, spoken(operation)]),
    })),
    { id: "host", label: "From the host", kind: "text", help: "An IP address; empty: from anywhere." },
  ],
  conf: (values) => ({ add: [aclConf(aclOf(values))] }),
  say: (values) => [
    aclSaid(aclOf(values)),
    "It counts for requests from a moment after the run on.",
    ...(values.permission === "DENY" ? [] : ["What the user may do by other ACLs stays."]),
  ],
};

export const removeAcl = {
  dag: "alter_acls",
  title: "Remove an ACL",
  start: "Remove it",
  danger: true,
  fields: [],
  conf: ({ acl }) => ({ remove: [aclConf(acl)] }),
  say: ({ acl }) => [
    `No longer: ${aclSaid(acl)}`,
    acl.permission === "DENY"
      ? "What other ACLs allow is allowed then."
      : "Where it was the last ACL of its name, the brokers' allow.everyone.if.no.acl.found decides then.",
  ],
};
