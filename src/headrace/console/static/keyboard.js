// Moves by keys: "/" filters, "g" and the first letter of a page opens it, "j" and "k" choose a row, Enter opens it.

const CHORD_MS = 1500;

export function listen(document) {
  let chordUntil = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (Date.now() < chordUntil) {
      chordUntil = 0;
      if (openPage(document, event.key)) event.preventDefault();
      return;
    }
    const act = { "/": filter, j: (page) => choose(page, 1), k: (page) => choose(page, -1), Enter: openRow }[event.key];
    if (event.key === "g") chordUntil = Date.now() + CHORD_MS;
    else if (act?.(document, event)) event.preventDefault();
  });
}

function filter(document) {
  const box = document.querySelector('[data-key="/"]');
  box?.focus();
  return Boolean(box);
}

function openPage(document, letter) {
  const links = [...document.querySelectorAll(".top nav a")];
  const found = links.find((link) => link.textContent.toLowerCase().startsWith(letter.toLowerCase()));
  if (found) found.click();
  return Boolean(found);
}

function choose(document, step) {
  const rows = [...document.querySelectorAll("[data-rows] tbody tr")];
  if (!rows.length) return false;
  const before = rows.findIndex((row) => row.classList.contains("chosen"));
  const at = Math.min(rows.length - 1, Math.max(0, before < 0 ? 0 : before + step));
  rows[before]?.classList.remove("chosen");
  rows[at].classList.add("chosen");
  rows[at].scrollIntoView({ block: "nearest" });
  return true;
}

function openRow(document, event) {
  if (event.target.closest("a, button, summary")) return false;
  const link = document.querySelector("tr.chosen a");
  link?.click();
  return Boolean(link);
}
