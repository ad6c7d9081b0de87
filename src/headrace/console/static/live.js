// Replaces the part of a page that changes by itself. The server renders it, and sends it by server-sent events.

/** Follows the page's own address, as long as the page is visible. */
export function follow(part, problem) {
  if (!part || !part.dataset.live) return;
  let source = null;

  const open = () => {
    source = new EventSource(location.pathname + location.search);
    source.addEventListener("live", (event) => {
      problem.hidden = true;
      replace(part, JSON.parse(event.data));
    });
    source.addEventListener("problem", (event) => {
      problem.textContent = JSON.parse(event.data);
      problem.hidden = false;
    });
  };
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : source ?? open()));
  addEventListener("pagehide", close);
  if (!document.hidden) open();
}

/** Puts the server's HTML in place. The focus and the places where a reader has scrolled to stay. */
function replace(part, html) {
  if (part.contains(document.activeElement) && isInput(document.activeElement)) return;
  const focused = part.contains(document.activeElement) ? pathTo(part, document.activeElement) : null;
  const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  const chosen = [...part.querySelectorAll("tbody tr")].findIndex((row) => row.classList.contains("chosen"));
  const parsed = new DOMParser().parseFromString(html, "text/html");
  part.replaceChildren(...parsed.body.childNodes);
  part.querySelectorAll(".scroll").forEach((each, at) => (each.scrollLeft = scrolled[at] ?? 0));
  part.querySelectorAll("tbody tr")[chosen]?.classList.add("chosen");
  if (focused) elementAt(part, focused)?.focus({ preventScroll: true });
  part.dataset.updated = new Date().toISOString();
}

const isInput = (element) => element.matches("input, select, textarea");

function pathTo(part, element) {
  const path = [];
  for (let each = element; each !== part; each = each.parentElement) {
    path.unshift([...each.parentElement.children].indexOf(each));
  }
  return path;
}

const elementAt = (part, path) => path.reduce((each, at) => each?.children[at], part);
