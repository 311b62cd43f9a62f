
(() => {
"use strict";
// Lists what is stored of a namespace, and opens it. The address after # is KEY, then &search=, &sort=, &open=NAME/UID or
// &compare=NAME/UID,NAME/UID: browsers do not send it. All that comes from the operator is put on the screen as text.

const at = (id) => document.getElementById(id);
const make = (tag, text, kind) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
try {
  const theme = localStorage.getItem("phpprof.theme");
  const dark = ["dark", "light"].includes(theme) ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
} catch {
  // A browser that keeps nothing shows the light page.
}

// The service may be below a path of its own, as behind the API server's proxy.
const [, base, namespace] = location.pathname.match(/^(.*)\/a\/([^/]+)$/);
const address = () => {
  const [key, ...rest] = location.hash.slice(1).split("&");
  return { key, state: new URLSearchParams(rest.join("&")) };
};
const link = (state) => "#" + [address().key, new URLSearchParams(state).toString()].filter(Boolean).join("&");
const ask = async (path, question) => {
  const body = JSON.stringify({ accessKey: address().key, ...question });
  const answer = await fetch(base + path, { method: "POST", body });
  const said = await answer.json().catch(() => ({ message: `the operator answered ${answer.status}; try again` }));
  if (!answer.ok) throw new Error(said.message);
  return said;
};

const count = new Intl.NumberFormat("en");
const time = (text) => text.slice(0, 19).replace("T", " ");
const size = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit += 1) bytes /= 1024;
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
};
const COLUMNS = [
  { key: "startTime", head: "Started (UTC)", kind: "time", text: (one) => time(one.startTime) },
  { key: "name", head: "Name", text: (one) => one.name },
  { key: "target", head: "Target", text: (one) => one.target },
  { key: "requestedBy", head: "Requested by", text: (one) => one.requestedBy ?? "" },
  { key: "durationSeconds", head: "Duration", kind: "number", text: (one) => (one.durationSeconds === undefined || one.durationSeconds === null ? "" : `${one.durationSeconds} s`) },
  { key: "pods", head: "Pods", kind: "number", text: (one) => count.format(one.pods) },
  { key: "samples", head: "Samples", kind: "number", text: (one) => count.format(one.samples) },
  { key: "sizeBytes", head: "Size", kind: "number", text: (one) => size(one.sizeBytes) },
  { key: "expiresAt", head: "Kept until (UTC)", kind: "time", text: (one) => time(one.expiresAt) },
];
const PAGE = 200;
let profiles = [];
let chosen = [];
let shown = PAGE;
const id = (one) => `${one.name}/${one.uid}`;

const sorting = () => {
  const [key, order] = (address().state.get("sort") ?? "startTime-down").split("-");
  return COLUMNS.some((column) => column.key === key) ? { key, down: order === "down" } : { key: "startTime", down: true };
};
const change = (name, value) => {
  const { state } = address();
  if (value) state.set(name, value);
  else state.delete(name);
  history.replaceState(null, "", link(state));
  draw();
};
const found = () => {
  const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (one) => COLUMNS.map((column) => column.text(one)).join("\n").toLowerCase();
  const { key, down } = sorting();
  const order = (one, other) => {
    const [a, b] = [one[key] ?? "", other[key] ?? ""];
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
  };
  return profiles.filter((one) => words.every((word) => text(one).includes(word))).sort(order);
};

const drawHeads = () => {
  const { key, down } = sorting();
  const heads = COLUMNS.map((column) => {
    const head = make("th", undefined, column.kind);
    head.scope = "col";
    if (column.key === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const button = head.appendChild(make("button", column.head));
    button.type = "button";
    // Numbers and times begin with the largest, names with A.
    const turned = column.key === key ? !down : Boolean(column.kind);
    button.onclick = () => {
      change("sort", `${column.key}-${turned ? "down" : "up"}`);
      at("heads").children[1 + COLUMNS.indexOf(column)].firstChild.focus();
    };
    return head;
  });
  at("heads").replaceChildren(make("td"), ...heads, make("td"));
};
const files = async (row, one) => {
  const there = row.nextSibling?.classList.contains("files") ? row.nextSibling : null;
  if (there) return there.remove();
  const below = make("tr", undefined, "files");
  const cell = below.appendChild(make("td", "Asking the operator …"));
  cell.colSpan = COLUMNS.length + 2;
  row.after(below);
  try {
    const { links } = await ask(`/a/${namespace}/${id(one)}`);
    cell.replaceChildren(...links.map(({ name, path }) => {
      const anchor = make("a", name);
      anchor.href = base + path;
      if (name !== "flame") anchor.download = `${one.name}.${path.split("/").pop()}`;
      return anchor;
    }), make("small", "These links open the files for five minutes."));
  } catch (error) {
    cell.textContent = error.message;
  }
};
const drawRow = (one) => {
  const row = make("tr");
  const box = make("input");
  box.type = "checkbox";
  box.checked = chosen.includes(id(one));
  box.disabled = !box.checked && chosen.length === 2;
  box.setAttribute("aria-label", `Compare ${one.name} of ${time(one.startTime)}`);
  box.onchange = () => {
    chosen = box.checked ? [...chosen, id(one)] : chosen.filter((other) => other !== id(one));
    drawPair();
  };
  row.appendChild(make("td")).append(box);
  for (const column of COLUMNS) {
    const cell = row.appendChild(make("td", column.key === "name" ? undefined : column.text(one), column.kind));
    if (column.key === "name") cell.appendChild(make("a", one.name)).href = link({ open: id(one) });
  }
  const button = row.appendChild(make("td")).appendChild(make("button", "Files"));
  button.type = "button";
  button.setAttribute("aria-label", `Files of ${one.name} of ${time(one.startTime)}`);
  button.onclick = () => files(row, one);
  row.dataset.id = id(one);
  return row;
};
// Boxes are changed where they are: whoever walks through them with the keyboard stays there.
const drawPair = () => {
  for (const row of at("rows").querySelectorAll("tr[data-id]")) {
    const box = row.querySelector("input");
    row.classList.toggle("chosen", chosen.includes(row.dataset.id));
    box.checked = chosen.includes(row.dataset.id);
    box.disabled = chosen.length === 2 && !box.checked;
  }
  const pair = profiles.filter((one) => chosen.includes(id(one))).sort((one, other) => (one.startTime < other.startTime ? -1 : 1));
  at("hint").hidden = pair.length === 2;
  at("hint").textContent = pair.length ? "Select one more profile to compare the two." : "Select two profiles to compare them.";
  at("none").hidden = pair.length === 0;
  at("compare").hidden = pair.length !== 2;
  if (pair.length !== 2) return;
  const named = pair.map((one) => `${one.name} (${time(one.startTime)})`);
  at("compare").textContent = `Compare ${named[0]} with ${named[1]}`;
  at("compare").href = link({ compare: pair.map(id).join(",") });
};
const draw = () => {
  const rows = found();
  drawHeads();
  at("rows").replaceChildren(...rows.slice(0, shown).map(drawRow));
  at("found").textContent = rows.length === profiles.length ? "" : `${count.format(rows.length)} of ${count.format(profiles.length)}`;
  at("more").hidden = rows.length <= shown;
  at("more").textContent = `Show ${count.format(Math.min(PAGE, rows.length - shown))} more`;
  drawPair();
};

const list = async () => {
  at("facts").textContent = "Asking the operator …";
  const said = await ask(`/a/${namespace}`);
  profiles = said.profiles;
  chosen = chosen.filter((one) => profiles.some((other) => id(other) === one));
  const more = said.leftOut ? `; ${count.format(said.leftOut)} older ones are in the store and are not listed` : "";
  at("facts").textContent = profiles.length
    ? `${count.format(profiles.length)} stored, ${size(said.bytes)}${more}`
    : `Nothing is stored. Profile a workload: kubectl phpprof run deploy/NAME -n ${namespace}`;
  at("search").value = address().state.get("search") ?? "";
  at("profiles").hidden = false;
  draw();
};
// Whoever goes back comes to the list: the flame graph takes the place of this address.
const follow = async (path, question, name, waiting) => {
  at("facts").textContent = waiting;
  const { links } = await ask(path, question);
  const wanted = links.find((one) => one.name === name);
  if (!wanted) throw new Error("This request has no merged profile. The profiles of its pods are in its files.");
  location.replace(base + wanted.path);
};
const turn = async () => {
  const { state } = address();
  at("profiles").hidden = at("message").hidden = true;
  at("back").href = link({});
  try {
    const pair = state.get("compare")?.split(",") ?? [];
    if (pair.length === 2) {
      const [name, uid] = pair[0].split("/");
      const names = pair.map((one) => one.split("/")[0]);
      await follow(`/a/${namespace}/${pair[1]}`, { before: { name, uid } }, "diff", `Comparing ${names[0]} with ${names[1]} …`);
    } else if (state.get("open")) {
      await follow(`/a/${namespace}/${state.get("open")}`, {}, "flame", `Drawing the flame graph of ${state.get("open").split("/")[0]} …`);
    } else {
      await list();
    }
  } catch (error) {
    at("facts").textContent = "";
    at("said").textContent = error.message;
    at("message").hidden = false;
  }
};

at("title").textContent = document.title = `Profiles of ${namespace}`;
at("search").oninput = () => {
  shown = PAGE;
  change("search", at("search").value);
};
at("more").onclick = () => {
  shown += PAGE;
  draw();
};
at("none").onclick = () => {
  chosen = [];
  drawPair();
};
at("reload").onclick = turn;
addEventListener("hashchange", turn);
turn();
})();
