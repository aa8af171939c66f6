// What a field suggests. Pure; `suggestions.js` renders it.

// What is being typed: of a list, the name after the last comma.
export function wantedOf(text, several) {
  return (several ? text.slice(text.lastIndexOf(",") + 1) : text).trim();
}

// The texts that the field would have with each name; names that the list has already are left out.
export function offered(found, kind, text, several) {
  const names = (found?.[kind] ?? []).map((one) => String(one.name ?? one.group ?? one.id));
  if (!several) return names;
  const before = text.slice(0, text.lastIndexOf(",") + 1);
  const given = new Set(before.split(",").map((name) => name.trim()));
  const head = before === "" ? "" : `${before.trim()} `;
  return names.filter((name) => !given.has(name)).map((name) => head + name);
}
