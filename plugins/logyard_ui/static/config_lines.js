// Settings as lines that a person edits, name=value on each line; pure.

// The settings that are set and can be edited as lines: {name: value}.
export function editable(configs) {
  const open = configs.filter(
    (config) => config.override && !config.sensitive && config.value !== null && !/[\r\n]/.test(config.value),
  );
  return Object.fromEntries(open.map((config) => [config.name, config.value]));
}

// {"a": "1"} → "a=1", one a line.
export function lines(settings) {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value ?? ""}`)
    .join("\n");
}

// The reverse: {settings, problem}.
export function parse(text) {
  const settings = {};
  for (const line of text.split("\n").map((part) => part.trim())) {
    if (line === "" || line.startsWith("#")) continue;
    const equals = line.indexOf("=");
    if (equals <= 0) return { settings, problem: `“${line}” is not a setting: write name=value` };
    const name = line.slice(0, equals).trim();
    if (Object.hasOwn(settings, name)) return { settings, problem: `${name} is set twice` };
    settings[name] = line.slice(equals + 1).trim();
  }
  return { settings, problem: "" };
}

// The changes from `before` to `after`: {name: value}, null for a setting that is unset.
export function difference(before, after) {
  const changes = {};
  for (const [name, value] of Object.entries(after)) if (before[name] !== value) changes[name] = value;
  for (const name of Object.keys(before)) if (!Object.hasOwn(after, name)) changes[name] = null;
  return changes;
}

// Those of the names that hold a secret: `hidden` ones, and names like those of secrets (as admin/configs/secrets.py).
const SECRET = new RegExp(
  "(^|[._-])(password|passphrase|secret|token|credential|credentials|secret\\.key|master\\.key|private\\.key|" +
    "access\\.key|api\\.key|keystore\\.key|certificate\\.chain|truststore\\.certificates|jaas\\.config)$",
);

export function secrets(names, hidden = []) {
  return names.filter((name) => hidden.includes(name) || SECRET.test(name.trim().toLowerCase()));
}
