// The REST API of the node that served this page, and whether it answers.
//
// Every failure becomes an ApiError whose message names the cause and the way out: the server writes them
// so. When there is no answer at all the console is offline; it then asks /health until there is one, and
// tells whoever watches, so that pages load again by themselves.

export const root = document.documentElement.dataset.root || "";

const TIMEOUT_MS = 65_000; // the node says after 60 s that it took too long, and knows better what did
const PROBE_FIRST_MS = 1_000;
const PROBE_LAST_MS = 8_000;

export class ApiError extends Error {
  constructor({ status, code, message, details = {} }) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }

  // The node does not offer this at all, as opposed to not having what was asked for.
  get isAbsent() {
    return (
      (this.status === 404 && (this.code === "INVALID_REQUEST" || this.code === "")) || this.status === 405
    );
  }

  // There is nobody, as opposed to somebody who takes long.
  get isOffline() {
    return this.code === "OFFLINE";
  }
}

// ---- the session

// What this page loads by itself does not keep a session: the node is told for how long its user did nothing.
let usedAt = Date.now();
for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
  addEventListener(kind, () => (usedAt = Date.now()), { passive: true, capture: true });
}

const idleFor = () => ({ "tailrace-idle": String(Math.floor((Date.now() - usedAt) / 1_000)) });

// A change by a session brings its token, which is another one after every login.
async function tokenOf(method, signal) {
  if (method === "GET") return {};
  const response = await fetch(`${root}/api/v1/whoami`, { signal, headers: idleFor(), cache: "no-store" });
  const { csrf } = response.ok ? await response.json() : {};
  return csrf ? { "tailrace-csrf": csrf } : {};
}

export async function logOut() {
  await request("POST", "/logout");
  location.assign(`${root}/`);
}

// What is kept of a page that was left must not be shown after a logout.
addEventListener("pageshow", (event) => event.persisted && location.reload());

// ---- requests

export const get = (path, options) => request("GET", path, options);
export const post = (path, body, options) => request("POST", path, { ...options, body });
export const put = (path, body, options) => request("PUT", path, { ...options, body });
export const patch = (path, body, options) => request("PATCH", path, { ...options, body });
export const remove = (path, options) => request("DELETE", path, options);

export async function request(method, path, { body, signal, timeout_ms = TIMEOUT_MS } = {}) {
  const deadline = AbortSignal.timeout(timeout_ms);
  const options = {
    method,
    signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
    cache: "no-store",
    headers: idleFor(),
  };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let response;
  let text;
  try {
    Object.assign(options.headers, await tokenOf(method, options.signal));
    response = await fetch(root + path, options);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (deadline.aborted) throw tookTooLong(method, timeout_ms);
    connection.lost();
    throw new ApiError({ status: 0, code: "OFFLINE", message: "The broker does not answer. Is it running?" });
  }
  connection.found();
  if (response.status === 401 && method === "GET") location.reload(); // the login page, at this address
  return readAnswer(response, text);
}

function tookTooLong(method, timeout_ms) {
  const advice =
    method === "GET" ? "Try again later" : "It may still have been done: look before you try again";
  return new ApiError({
    status: 0,
    code: "TIMEOUT",
    message: `The broker did not answer within ${timeout_ms / 1_000} s. ${advice}.`,
  });
}

function readAnswer(response, text) {
  let data = null;
  if (text) {
    try {
      data = JSON.parse(text);
    } catch {
      data = null;
    }
  }
  if (response.ok) return data;
  const error = data?.error ?? {};
  throw new ApiError({
    status: response.status,
    code: error.code ?? "",
    message: error.message ?? `The broker answered ${response.status} ${response.statusText}`,
    details: error.details,
  });
}

// A path with its variable parts escaped: path`/api/v1/topics/${name}`.
export function path(texts, ...values) {
  return texts.reduce((whole, text, at) => whole + encodeURIComponent(values[at - 1]) + text);
}

// Parameters as ?a=1&b=2; what is undefined, null or "" is left out.
export function query(values) {
  const given = Object.entries(values).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// The address of a live stream on this node.
export function socketAddress(path) {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${root}${path}`;
}

// Why the node refuses a live stream, or "" if it does not, or may not for long. A browser keeps from a page
// what a handshake was answered with; a GET of the same address is answered alike.
export async function refusalOf(path) {
  const enough = new AbortController();
  const timer = setTimeout(() => enough.abort(), TIMEOUT_MS);
  try {
    const response = await fetch(root + path, { signal: enough.signal, cache: "no-store" });
    if (response.status < 400 || response.status >= 500) return "";
    return (await response.json()).error?.message ?? `the broker answered ${response.status}`;
  } catch {
    return ""; // no answer at all
  } finally {
    clearTimeout(timer);
    enough.abort();
  }
}

// ---- the connection

export const connection = {
  isOnline: true,
  watchers: new Set(),

  watch(watcher) {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  },

  lost() {
    if (!this.isOnline) return;
    this.isOnline = false;
    this.tell();
    this.probe(PROBE_FIRST_MS);
  },

  found() {
    if (this.isOnline) return;
    this.isOnline = true;
    this.tell();
  },

  tell() {
    for (const watcher of [...this.watchers]) watcher(this.isOnline);
  },

  probe(wait_ms) {
    setTimeout(async () => {
      if (this.isOnline) return;
      try {
        await fetch(`${root}/health`, { signal: AbortSignal.timeout(4_000), cache: "no-store" });
        this.found();
      } catch {
        this.probe(Math.min(wait_ms * 1.6, PROBE_LAST_MS));
      }
    }, wait_ms);
  },
};
