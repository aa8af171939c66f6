// The actions on users who log in by SCRAM. Pure; `actions.js` describes a spec.
//
// A password is never typed here: a run names the Airflow connection that has it.

import { given, whole } from "./forms.js";

export const userField = { id: "user", label: "User", kind: "text", required: true, help: "Without User: before it." };
export const passwordField = {
  id: "password_connection",
  label: "Password's connection",
  kind: "text",
  required: true,
  help: "The id of an Airflow connection that has the password (Admin → Connections, type Generic).",
};
const mechanismField = {
  id: "mechanisms",
  label: "Mechanism",
  kind: "choice",
  options: [
    ["SCRAM-SHA-512", "SCRAM-SHA-512"],
    ["SCRAM-SHA-256", "SCRAM-SHA-256"],
    ["SCRAM-SHA-256,SCRAM-SHA-512", "both"],
  ],
};
const iterationsField = {
  id: "iterations",
  label: "Iterations",
  kind: "number",
  least: 4096,
  help: "Of the password's hash, 4096 to 16384; empty: 8192.",
};

function userConf(values, change) {
  return given({
    user: values.user.trim(),
    password_connection: values.password_connection.trim(),
    mechanisms: values.mechanisms,
    iterations: whole(values.iterations),
    change_password: change,
  });
}

const iterationsCheck = ({ iterations }) => (Number(iterations) > 16384 ? "Iterations are 16384 at most." : "");
const whence = ({ password_connection }) =>
  `The password is that of the connection ${password_connection.trim()}: no form, run or log has it.`;

export const createUser = {
  dag: "alter_user",
  title: "Add a user",
  start: "Add it",
  fields: [userField, passwordField, mechanismField, iterationsField],
  check: iterationsCheck,
  conf: (values) => userConf(values, false),
  say: (values) => [
    `User ${values.user.trim()} can log in by ${values.mechanisms.replace(",", " and ")}.`,
    whence(values),
    "A user that has such a password keeps it.",
  ],
};

export const changePassword = {
  dag: "alter_user",
  title: ({ user }) => `New password of ${user}`,
  start: "Change it",
  fields: [passwordField, mechanismField, iterationsField],
  check: iterationsCheck,
  conf: (values) => userConf(values, true),
  say: (values) => [
    `User ${values.user} logs in with another password by ${values.mechanisms.replace(",", " and ")}.`,
    whence(values),
    "Connections that are open stay; new ones need the new password.",
  ],
};

export const deleteUser = {
  dag: "alter_user",
  title: "Delete a user",
  start: "Delete it",
  danger: true,
  fields: [],
  type: (values) => values.user,
  conf: (values) => ({ user: values.user, delete_user: true }),
  say: (values) => [
    `The SCRAM passwords of ${values.user} are deleted: nobody logs in with them any more.`,
    "Its ACLs and limits stay.",
  ],
};
