// The settings of a broker, or of all brokers, as an action. Pure; `actions.js` describes a spec.

import { difference, editable, lines, parse, secrets } from "./config_lines.js";

export const ALL = "default";
const of = ({ broker }) => (broker === ALL ? "all brokers" : `broker ${broker}`);
const changed = (values) => difference(values.before, parse(values.configs ?? "").settings);

// The values of the form: the settings that are set here, as lines; `add`: one more, to be changed. `told` is what each
// setting has now, `hidden` the names whose values brokers do not tell.
export function brokerSettings(broker, configs, add = "") {
  const before = editable(configs);
  const told = Object.fromEntries(configs.filter((one) => !one.sensitive).map((one) => [one.name, one.value]));
  const more = add && !Object.hasOwn(before, add) ? { [add]: told[add] ?? "" } : {};
  const hidden = configs.filter((one) => one.sensitive).map((one) => one.name);
  return { broker: String(broker), before, told, hidden, configs: lines({ ...before, ...more }) };
}

export const alterBrokerSettings = {
  dag: "alter_broker_settings",
  title: (values) => `Change settings of ${of(values)}`,
  start: "Change them",
  fields: [
    {
      id: "configs",
      label: "Settings",
      kind: "lines",
      rows: 8,
      help: "One on each line. If you remove a line, the setting is unset, and what was below it applies.",
    },
  ],
  check: (values) => {
    const { problem } = parse(values.configs ?? "");
    const changes = Object.keys(changed(values));
    const refused = secrets(changes, values.hidden);
    const instead = "is a secret, and Airflow would keep it: set it by logyard configs or kafka-configs.";
    if (refused.length > 0) return `${refused.join(", ")} ${instead}`;
    return problem || (changes.length === 0 ? "Nothing is changed yet." : "");
  },
  route: "broker_check",
  asks: (values) => {
    const changes = Object.entries(changed(values));
    return {
      broker: values.broker === ALL ? undefined : values.broker,
      set: changes.filter(([, value]) => value !== null).map(([name, value]) => `${name}=${value}`),
      unset: changes.filter(([, value]) => value === null).map(([name]) => name),
    };
  },
  conf: (values) => ({ broker: values.broker, settings: changed(values) }),
  say: (values) => [
    `Settings of ${of(values)} change, without a restart:`,
    ...Object.entries(changed(values)).map(
      ([name, value]) => `${name}: ${values.told[name] ?? "not set"} → ${value ?? "no longer set here"}`,
    ),
    ...(values.broker === ALL ? ["A broker that has a value of its own keeps it."] : []),
  ],
};
