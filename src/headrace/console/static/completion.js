// Completes statements: views, their columns and keywords. The words come with the page; nothing is asked.
//
// Typing opens the list. Arrow keys choose, Enter takes what was chosen, Tab takes what was chosen or the first, Escape
// closes, Ctrl+Space opens. Without a choice Enter is a new line, and with a closed list Tab leaves the box.

const KEYWORDS = (
  "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET JOIN LEFT INNER CROSS ON USING AS AND OR NOT IN IS NULL LIKE " +
  "BETWEEN EXISTS CASE WHEN THEN ELSE END DISTINCT UNION ALL EXCEPT INTERSECT WITH VALUES ASC DESC CAST TRUE FALSE " +
  "count sum avg min max coalesce"
).split(" ");
const MOST = 8;
const PLAIN = /^[a-z_][a-z0-9_]*$/;
const WORD = /(?:("?)([\w$]+)\1\.)?("?)([\w$]*)$/;

export function complete(box) {
  if (!box) return;
  const tables = new Map(Object.entries(JSON.parse(box.dataset.tables)));
  const list = document.getElementById(box.getAttribute("aria-controls"));
  const status = document.getElementById("completion-status");
  let found = null;
  let chosen = -1;

  const close = () => show(null);
  const show = (next) => {
    found = next;
    chosen = -1;
    box.removeAttribute("aria-activedescendant");
    list.hidden = !found;
    list.replaceChildren(...(found?.words ?? []).map(option));
    status.textContent = found ? `${found.words.length} completions, arrow keys choose` : "";
  };
  const option = (word, at) => {
    const item = document.createElement("li");
    item.id = `completion-${at}`;
    item.role = "option";
    item.textContent = word.text;
    const kind = document.createElement("span");
    kind.textContent = word.kind;
    item.append(" ", kind);
    item.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the box keeps the focus
      take(at);
    });
    return item;
  };
  const choose = (at) => {
    chosen = (at + found.words.length) % found.words.length;
    [...list.children].forEach((item, each) => item.setAttribute("aria-selected", String(each === chosen)));
    box.setAttribute("aria-activedescendant", `completion-${chosen}`);
    list.children[chosen].scrollIntoView({ block: "nearest" });
  };
  const take = (at) => {
    box.setRangeText(found.words[at].text, found.start, box.selectionEnd, "end");
    close();
  };
  const open = () => show(box.selectionStart === box.selectionEnd ? find(box.value, box.selectionStart, tables) : null);

  box.addEventListener("input", (event) => (/^(insertText|delete)/.test(event.inputType ?? "") ? open() : close()));
  // Not with the loss of the focus: the page would move between a press and its release, and the click would miss.
  document.addEventListener("click", close);
  box.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.ctrlKey && event.key === " ") return open(), event.preventDefault();
    if (event.key === "Tab" && event.shiftKey) return close();
    if (!found || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen < 0 ? -1 : chosen - 1);
    else if (event.key === "Tab") take(Math.max(chosen, 0));
    else if (event.key === "Enter" && chosen >= 0) take(chosen);
    else if (event.key === "Escape") close();
    else return void (event.key.startsWith("Arrow") && close());
    event.preventDefault();
  });
}

/** What may stand at the caret: the words, and where the word that they replace begins. Null if there is nothing. */
export function find(text, caret, tables) {
  const before = text.slice(0, caret);
  if (isLiteral(before)) return null;
  const [, , owner, quote, typed] = before.match(WORD);
  const known = owner ? columnsOf(owner, text, tables) : everything(before, text, tables);
  const begun = typed.toLowerCase();
  const words = new Map();
  for (const word of known) {
    const name = word.text.toLowerCase();
    if (name.startsWith(begun) && !(quote && word.kind === "keyword")) words.set(`${word.kind} ${name}`, word);
  }
  const kept = [...words.values()].slice(0, MOST).map((word) => ({ ...word, text: written(word) }));
  const isDone = kept.length === 1 && kept[0].text.toLowerCase() === begun;
  if (!kept.length || isDone || (!begun && !owner && !quote && !/\s$/.test(before))) return null;
  return { words: kept, start: caret - typed.length - quote.length };
}

/** Whether the caret is inside of a text or a comment. */
function isLiteral(before) {
  const left = before.replace(/'(?:[^']|'')*'|--[^\n]*\n|\/\*[^]*?\*\//g, " ");
  return /'|--|\/\*/.test(left);
}

function columnsOf(owner, text, tables) {
  const name = owner.toLowerCase();
  const table = named(text, tables).find((each) => each.alias === name) ?? { table: match(name, tables) };
  return (tables.get(table.table) ?? []).map((column) => ({ text: column, kind: table.table }));
}

function everything(before, text, tables) {
  const views = [...tables.keys()].map((table) => ({ text: table, kind: "view" }));
  if (/\b(?:from|join)\s+"?[\w$]*$/i.test(before)) return views;
  const used = new Set(named(text, tables).map((each) => each.table));
  const sources = used.size ? [...used] : [...tables.keys()];
  const columns = sources.flatMap((table) => tables.get(table).map((column) => ({ text: column, kind: table })));
  return [...columns, ...views, ...KEYWORDS.map((keyword) => ({ text: keyword, kind: "keyword" }))];
}

/** The views that a statement reads, with the names that it gives them. */
function named(text, tables) {
  const pattern = /\b(?:from|join)\s+"?([\w$]+)"?(?:\s+(?:as\s+)?(?!(?:where|group|order|join|left|inner|cross|on|using|limit)\b)([\w$]+))?/gi;
  return [...text.matchAll(pattern)]
    .map(([, table, alias]) => ({ table: match(table.toLowerCase(), tables), alias: (alias ?? table).toLowerCase() }))
    .filter((each) => each.table);
}

const match = (name, tables) => [...tables.keys()].find((table) => table.toLowerCase() === name);
const written = ({ text, kind }) => (kind === "keyword" || PLAIN.test(text) ? text : `"${text.replaceAll('"', '""')}"`);
