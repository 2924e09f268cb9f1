// The live KV pool: draws the numbers of /admin/pool/live/data/ once a second while the page is visible.
const root = document.getElementById("pool");
const texts = JSON.parse(document.getElementById("pool-texts").textContent);
const language = document.documentElement.lang || "en";
let latest = JSON.parse(document.getElementById("pool-data").textContent);
let unit = "blocks";

const MIB = 2 ** 20;
const integer = new Intl.NumberFormat(language);
const large = new Intl.NumberFormat(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const small = new Intl.NumberFormat(language, { maximumSignificantDigits: 2 });
const weight = new Intl.NumberFormat(language, { maximumFractionDigits: 3 });
const seconds = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "—");

/** Blocks in MiB; a toy model's blocks are a few bytes. */
function mebibytes(blocks, engine) {
  const value = (blocks * engine.bytes_per_block) / MIB;
  return value < 1 ? small.format(value) : large.format(value);
}

/** Bytes in MiB, with the unit. */
const bytes = (count) => `${count && count < MIB ? small.format(count / MIB) : large.format(count / MIB)} ${texts.MiB}`;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A number of blocks in the unit chosen. */
function size(blocks, engine) {
  if (unit === "tokens") return integer.format(blocks * engine.block_size);
  if (unit === "MiB") return mebibytes(blocks, engine);
  return integer.format(blocks);
}

const width = (blocks, engine) => `${Math.min(100, (100 * blocks) / engine.total)}%`;

function segment(className, blocks, engine) {
  const made = element("span", className);
  made.style.width = width(blocks, engine);
  return made;
}

function marker(className, blocks, engine) {
  const made = element("i", className);
  made.style.left = width(blocks, engine);
  return made;
}

function tile(label, blocks, engine) {
  const box = element("div");
  box.append(element("dt", "", label), element("dd", "", size(blocks, engine)));
  const tokens = integer.format(blocks * engine.block_size);
  const parts = { blocks: `${integer.format(blocks)} ${texts.blocks}`, tokens: `${tokens} ${texts.tokens}`, MiB: `${mebibytes(blocks, engine)} ${texts.MiB}` };
  delete parts[unit];
  box.append(element("dd", "small", Object.values(parts).join(" · ")));
  return box;
}

const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);

/** "40 for its own newer prompts, 23 …" from counts by cause. */
function listed(counts, name) {
  const named = Object.entries(counts).filter(([, count]) => count);
  return named.map(([key, count]) => `${integer.format(count)} ${name(key)}`).join(", ");
}

/** What was taken from this tenant and why, and what moved between the tiers, as a line below its numbers; or null. */
function losses(account, columns) {
  const parts = [];
  const cause = (name) => texts[name] ?? name;
  if (sum(account.evictions)) {
    const others = { ...account.evicted_by };
    delete others[account.name];
    const whom = sum(others) ? ` (${texts["for others"]}: ${listed(others, (name) => name)})` : "";
    parts.push(`${texts.evicted}: ${listed(account.evictions, cause)}${whom}`);
  }
  if (sum(account.preemptions)) parts.push(`${texts.preempted}: ${listed(account.preemptions, cause)}`);
  if (sum(account.demoted)) parts.push(`${texts.demoted}: ${listed(account.demoted, (tier) => cause(`demoted to ${tier}`))}`);
  if (sum(account.promoted)) parts.push(`${texts.promoted}: ${listed(account.promoted, (tier) => cause(`promoted from ${tier}`))}`);
  if (!parts.length) return null;
  const line = element("tr", "pool-losses");
  const cell = element("td", "", parts.join(" · "));
  cell.colSpan = columns.length;
  line.append(cell);
  return line;
}

/** The columns of an engine's table: those of tiers only where it has the tier. */
const columnsOf = (engine) => Object.keys(texts.columns).filter((name) => !["host", "disk"].includes(name) || engine.tiers[name]);

function chart(account, engine) {
  const bar = element("div", "pool-bar");
  bar.setAttribute("role", "img");
  bar.setAttribute(
    "aria-label",
    `${account.name}: ${texts.active} ${account.active}, ${texts.cached} ${account.cached}, ` +
      `${texts.reservation} ${account.reservation}, ${texts.limit} ${account.limit} (${texts.blocks})`,
  );
  bar.append(segment("active", account.active, engine), segment("cached", account.cached, engine));
  if (account.reservation) bar.append(marker("reservation", account.reservation, engine));
  bar.append(marker("limit", account.limit, engine));
  return bar;
}

/** Bytes in MiB, small beside what they are bounded by. */
function tier(account, name) {
  const limit = account.tier_limits?.[name];
  const bound = limit === undefined ? "" : `${texts.of} ${bytes(limit)}`;
  return [bytes(account.tier_bytes[name] ?? 0), bound];
}

/** Each column's number, and in small what belongs to it. */
const CELLS = {
  active: (account, engine) => [size(account.active, engine), account.shared ? `${size(account.shared, engine)} ${texts.shared}` : ""],
  cached: (account, engine) => [size(account.cached, engine)],
  held: (account, engine) => [size(account.held, engine)],
  reservation: (account, engine) => [
    size(account.reservation, engine),
    account.reserved_unused ? `${size(account.reserved_unused, engine)} ${texts.unused}` : "",
  ],
  limit: (account, engine) => [
    size(account.limit ?? engine.total, engine),
    account.weight === undefined || account.public ? "" : `${texts.weight} ${weight.format(account.weight)}`,
  ],
  work: (account) => [
    `${account.running} / ${account.waiting}`,
    account.queue_wait_s >= 0.05 ? `${seconds.format(account.queue_wait_s)} s ${texts.waited}` : "",
  ],
  hits: (account) => [percent(account.hit_tokens, account.queried_tokens)],
  host: (account) => tier(account, "host"),
  disk: (account) => tier(account, "disk"),
  evictions: (account) => [integer.format(sum(account.evictions))],
  preemptions: (account) => [integer.format(sum(account.preemptions))],
};

function row(account, engine) {
  const line = element("tr", account.public ? "pool-public" : "");
  const name = element("th", "", account.name);
  name.scope = "row";
  const share = element("td", "pool-chart");
  if (account.id) share.append(chart(account, engine));
  line.append(name, share);
  const columns = columnsOf(engine);
  for (const column of columns.slice(2)) {
    const [value, note] = CELLS[column](account, engine);
    const cell = element("td", "number");
    cell.dataset.label = texts.columns[column];
    const number = element("span", "", value);
    if (note) number.append(element("small", "", note));
    cell.append(number);
    line.append(cell);
  }
  return [line, account.id ? losses(account, columns) : null].filter(Boolean);
}

function total(bar, engine) {
  bar.setAttribute(
    "aria-label",
    `${texts.active} ${engine.active}, ${texts.cached} ${engine.cached}, ${texts.free} ${engine.free} (${texts.blocks})`,
  );
  bar.replaceChildren(
    segment("active", engine.active, engine),
    segment("cached", engine.cached, engine),
    segment("free", engine.free, engine),
  );
}

/** Two areas, the active blocks below the cached ones, on the scale of the pool. */
function history(svg, engine) {
  svg.replaceChildren();
  const points = engine.history;
  if (points.length < 2) return;
  const x = (index) => (600 * (index + 120 - points.length)) / 119;
  const y = (blocks) => 80 - (80 * blocks) / engine.total;
  const area = (className, top, bottom) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const forth = points.map((point, index) => `${x(index)},${y(top(point))}`);
    const back = points.map((point, index) => `${x(index)},${y(bottom(point))}`).reverse();
    path.setAttribute("d", `M${[...forth, ...back].join("L")}Z`);
    path.setAttribute("class", className);
    svg.append(path);
  };
  area("cached", (point) => point.active + point.cached, (point) => point.active);
  area("active", (point) => point.active, () => 0);
}

function card(engine) {
  const made = document.getElementById("pool-engine").content.cloneNode(true).firstElementChild;
  made.querySelector(".pool-model").textContent = engine.model || engine.address;
  made.querySelector(".pool-address").textContent = [engine.address, engine.device].filter(Boolean).join(" · ");
  const equation = made.querySelector(".pool-sum");
  if (!engine.reachable) {
    equation.textContent = texts["not reachable"];
    equation.classList.add("bad");
    for (const part of made.querySelectorAll(".pool-tiles, .pool-total, .pool-legend, .pool-scroll, .pool-history")) part.remove();
    return made;
  }
  equation.textContent = `${texts.free} ${size(engine.free, engine)} + ${texts.active} ${size(engine.active, engine)} + ${texts.cached} ${size(engine.cached, engine)} = ${size(engine.total, engine)} ${texts[unit]} `;
  equation.append(element("span", engine.adds_up ? "good" : "bad", engine.adds_up ? `✓ ${texts["adds up"]}` : `✗ ${texts["does not add up"]}`));
  const tiles = made.querySelector(".pool-tiles");
  for (const name of ["active", "cached", "free"]) tiles.append(tile(texts[name], engine[name], engine));
  const rate = element("div");
  rate.append(element("dt", "", texts["hit rate"]), element("dd", "", percent(engine.hit_tokens, engine.queried_tokens)));
  rate.append(element("dd", "small", `${integer.format(engine.hit_tokens)} / ${integer.format(engine.queried_tokens)} ${texts.tokens}`));
  tiles.append(rate);
  for (const name of ["host", "disk"]) {
    if (!engine.tiers[name]) continue;
    const box = element("div");
    box.append(element("dt", "", texts.columns[name]), element("dd", "", bytes(engine.sum.tier_bytes[name] ?? 0)));
    box.append(element("dd", "small", `${texts.of} ${bytes(engine.tiers[name])}`));
    tiles.append(box);
  }
  total(made.querySelector(".pool-total"), engine);
  const columns = columnsOf(engine);
  for (const head of made.querySelectorAll("[data-column]")) if (!columns.includes(head.dataset.column)) head.remove();
  made.querySelector("tbody").append(...engine.accounts.flatMap((account) => row(account, engine)));
  made.querySelector("tfoot").append(...row({ ...engine.sum, name: texts.Total }, engine));
  history(made.querySelector("svg"), engine);
  return made;
}

function draw() {
  root.querySelector(".pool-alerts").replaceChildren(...latest.alerts.map((text) => element("p", "", text)));
  root.querySelector(".pool-engines").replaceChildren(...latest.engines.map(card));
  status(`${texts.updated} ${new Date(1000 * latest.time).toLocaleTimeString(language)}`, true);
}

function status(text, good) {
  root.querySelector(".pool-status").textContent = text;
  root.querySelector(".pool-dot").classList.toggle("bad", !good);
}

async function refresh() {
  if (!document.hidden) {
    try {
      const response = await fetch(root.dataset.url, { headers: { accept: "application/json" } });
      if (!response.ok) throw new Error(response.statusText);
      latest = await response.json();
      draw();
    } catch {
      status(texts["no answer from the server"], false);
    }
  }
  setTimeout(refresh, 1000);
}

root.querySelector(".pool-units").addEventListener("change", (event) => {
  unit = event.target.value;
  draw();
});
draw();
setTimeout(refresh, 1000);
