// Requests to the JSON API. The browser keeps answers and asks only whether they changed.

export class ApiError extends Error {
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

// Status 0: the server did not answer.
export async function get(path) {
  const response = await fetch(`/api/v1${path}`, { cache: "no-cache" }).catch((error) => {
    throw new ApiError(0, error.message, "");
  });
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new ApiError(response.status, body.error?.message ?? response.statusText, body.error?.hint ?? "");
  }
  const data = await response.json();
  const rest = Number(response.headers.get("x-fresh-after"));
  return { data, freshAfter: Number.isFinite(rest) && rest > 0 ? rest : null };
}

export const studyPath = (study, rest = "") => `/studies/${encodeURIComponent(study)}${rest}`;
export const cellPath = (study, cell, rest = "") => {
  const cut = cell.lastIndexOf("/");
  return studyPath(study, `/cells/${encodeURIComponent(cell.slice(0, cut))}/${cell.slice(cut + 1)}${rest}`);
};

// The token stands behind # in the address that was printed; it is exchanged for a cookie and taken out at once.
export async function exchangeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  await signIn(found[1]);
}

export async function signIn(token) {
  const response = await fetch("/api/v1/session", { headers: { authorization: `Bearer ${token}` }, cache: "no-store" });
  return response.ok;
}
