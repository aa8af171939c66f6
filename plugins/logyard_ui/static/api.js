// Requests to this server, as the user who is logged in: our own routes by GET, actions by Airflow's REST API.

export class Refused extends Error {
  // An answer with an error status; `status` is 0 where there was no answer at all.
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// A path below the UI's base, which may itself lie below a path of a proxy.
export function address(path, query = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    // A list becomes a parameter that is repeated.
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, one);
    }
  }
  return url.href;
}

export function pageApi(path, query) {
  return address(`logyard/api/${path}`, query);
}

export function airflow(...parts) {
  return address(["api/v2", ...parts.map(encodeURIComponent)].join("/"));
}

// {body, etag}; body is null where nothing has changed since `etag`. Raises Refused.
export async function fetchJson(url, { etag = "", signal } = {}) {
  const answer = await send(url, { headers: etag ? { "If-None-Match": etag } : {}, signal });
  if (answer.status === 304) return { body: null, etag };
  return { body: await read(answer), etag: answer.headers.get("ETag") ?? "" };
}

export async function get(url, options) {
  return (await fetchJson(url, options)).body;
}

// Raises Refused with Airflow's reason.
export async function write(method, url, content) {
  const answer = await send(url, {
    method,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(content),
  });
  return read(answer);
}

async function send(url, options) {
  try {
    return await fetch(url, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (problem) {
    if (problem instanceof DOMException && problem.name === "AbortError") throw problem;
    throw new Refused(0, "Airflow's server does not answer; trying again.");
  }
}

async function read(answer) {
  const text = await answer.text();
  let body = null;
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    body = null;
  }
  if (!answer.ok) throw new Refused(answer.status, reason(body, answer.status));
  return body;
}

function reason(body, status) {
  const detail = body?.detail;
  if (typeof detail === "string") return detail;
  if (typeof detail?.reason === "string") return detail.reason;
  if (Array.isArray(detail))
    return detail.map((item) => `${(item.loc ?? []).slice(1).join(".")}: ${item.msg}`).join("; ");
  if (status === 401) return "You are no longer logged in: reload this page.";
  return `The server answered ${status}.`;
}

// An error as one sentence for the user.
export function sentence(problem) {
  if (problem instanceof Refused && problem.status === 403)
    return `You have no permission for this: ${problem.message}`;
  return problem instanceof Error ? problem.message : String(problem);
}
