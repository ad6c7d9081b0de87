// Shows the records of a live tail. All are counted; the newest are kept as rows. Texts are only ever set as texts.

const MOST_ROWS = 200;

/** Follows the stream whose address the element has. */
export function followTail(part) {
  if (!part) return;
  const rows = part.querySelector("#tail-rows");
  const status = part.querySelector("#tail-status");
  const pause = part.querySelector("#tail-pause");
  const clear = part.querySelector("#tail-clear");
  const state = { source: null, positions: part.dataset.positions, received: 0, dropped: 0, behind: 0, waiting: [], drawing: false };

  const show = () => {
    state.drawing = false;
    const fresh = state.waiting.splice(0).slice(-MOST_ROWS).reverse();
    rows.prepend(...fresh.map((record) => rowOf(record, part.dataset.record)));
    while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
    const lost = state.dropped ? ` ${state.dropped.toLocaleString("en")} were left out, because they came too fast.` : "";
    const late = state.behind ? ` ${state.behind.toLocaleString("en")} more are waiting.` : "";
    status.textContent = `${state.received.toLocaleString("en")} records.${lost}${late}`;
    part.dataset.received = state.received;
    part.dataset.dropped = state.dropped;
  };
  const later = () => {
    if (!state.drawing) requestAnimationFrame(show);
    state.drawing = true;
  };
  const open = () => {
    const address = new URL(part.dataset.events, location.href);
    address.searchParams.set("positions", state.positions);
    state.source = new EventSource(address);
    state.source.addEventListener("open", () => (part.dataset.open = "true"));
    state.source.addEventListener("records", (event) => {
      const found = JSON.parse(event.data);
      state.positions = event.lastEventId;
      state.received += found.records.length;
      state.dropped += found.dropped;
      state.behind = found.behind;
      state.waiting.push(...found.records);
      if (state.waiting.length > 2 * MOST_ROWS) state.waiting.splice(0, state.waiting.length - MOST_ROWS);
      later();
    });
    state.source.addEventListener("problem", (event) => (status.textContent = JSON.parse(event.data)));
  };
  const close = () => {
    state.source?.close();
    state.source = null;
    delete part.dataset.open;
  };
  pause.addEventListener("click", () => {
    pause.textContent = state.source ? "Continue" : "Pause";
    state.source ? close() : open();
  });
  clear.addEventListener("click", () => rows.replaceChildren());
  pause.hidden = clear.hidden = false;
  addEventListener("pagehide", close);
  open();
}

function rowOf(record, path) {
  const row = document.createElement("tr");
  const heading = document.createElement("th");
  heading.scope = "row";
  const link = document.createElement("a");
  link.href = `${path}/${record.partition}/${record.offset}`;
  link.textContent = `${record.partition}:${record.offset}`;
  heading.append(link);
  const time = new Date(record.timestamp_ms);
  const when = isNaN(time) ? String(record.timestamp_ms) : time.toISOString().replace("T", " ").replace("Z", " UTC");
  row.append(heading, cell(when), cell(record.key ?? "null", "value"), cell(record.value ?? "null", "value"));
  row.append(cell(`${record.size_bytes} B`, "number"));
  return row;
}

function cell(text, kind = "") {
  const made = document.createElement("td");
  made.className = kind;
  made.textContent = text;
  return made;
}
