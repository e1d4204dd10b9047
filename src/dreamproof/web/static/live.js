// One stream of events for the page: says which studies changed; connects again by itself; rests while nobody looks.

const RETRY_MS = 2000;
const listeners = new Set();
let source = null,
  retry = null,
  connected = null;

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function publish(event) {
  for (const listener of [...listeners]) listener(event);
}

function setConnected(now) {
  if (connected === now) return;
  connected = now;
  publish({ kind: "connection", connected });
}

function connect() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource("/api/v1/events");
  const take = (event) => {
    setConnected(true);
    publish({ kind: event.type, studies: JSON.parse(event.data) });
  };
  source.addEventListener("hello", take);
  source.addEventListener("change", take);
  source.addEventListener("error", () => {
    setConnected(false);
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, RETRY_MS);
  });
}

export function start() {
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(retry);
      source?.close();
    } else connect();
  });
}
