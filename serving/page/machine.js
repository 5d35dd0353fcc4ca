// The live view of the machine: drawn once from /v1/larder/plan, filled every second from /v1/larder/status.
import { $, getJson, make, plan } from "./api.js";
import { fillExperts } from "./experts.js";

const kPollMs = 1000;
const kSparkPoints = 60;
const rates = [];
let drawn = null; // the drawing of the plan: sockets by name

const percent = (share) => `${(100 * share).toFixed(share > 0.995 || share === 0 ? 0 : 1)} %`;
const kMebi = 2 ** 20;
const mebibytes = (bytes) => `${(bytes / kMebi).toFixed(bytes % kMebi === 0 || bytes >= 1000 * kMebi ? 0 : 1)} MiB`;
function count(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} B`;
  return n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : Math.round(n).toLocaleString("en");
}

function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  return seconds < 1 ? `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1)} ms` : `${seconds.toFixed(2)} s`;
}

function age(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `up ${Math.floor(seconds)} s`;
  return minutes < 60 ? `up ${minutes} min` : `up ${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function layersText(socket) {
  const parts = [];
  if (socket.embedding) parts.push("embedding");
  if (socket.layers === 1) parts.push(`layer ${socket.first_layer}`);
  if (socket.layers > 1) parts.push(`layers ${socket.first_layer}–${socket.first_layer + socket.layers - 1}`);
  if (socket.lm_head) parts.push("lm_head");
  if (socket.slots > 0) parts.push(`KV cache of ${socket.slots} slot${socket.slots > 1 ? "s" : ""}`);
  return parts.join(", ") || "no layers";
}

function drawLayers(socket, total) {
  const strip = make("div", "layers");
  strip.setAttribute("role", "img");
  strip.setAttribute("aria-label", layersText(socket));
  const cell = (here, title) => {
    const box = make("span", here ? "here" : "");
    box.title = title;
    strip.append(box);
  };
  cell(socket.embedding, "embedding");
  for (let layer = 0; layer < total; ++layer) {
    cell(layer >= socket.first_layer && layer < socket.first_layer + socket.layers, `layer ${layer}`);
  }
  cell(socket.lm_head, "lm_head");
  return strip;
}

// Makes a box for the L3 group: how full its cache is, and its cores. Returns the cores' elements in the threads' order.
function drawGroup(group, attends) {
  const box = make("div", "group");
  const known = group.l3_bytes > 0;
  box.append(make("h4", "", `L3 group ${group.id}${known ? ` · ${mebibytes(group.l3_bytes)}` : ""}`));
  if (known && !attends) {
    const meter = make("div", "meter");
    const fill = make("span", group.weight_bytes > group.budget_bytes ? "fill over" : "fill");
    fill.style.width = `${Math.min(100, (100 * group.weight_bytes) / group.l3_bytes)}%`;
    const budget = make("span", "tick");
    budget.style.left = `${Math.min(100, (100 * group.budget_bytes) / group.l3_bytes)}%`;
    meter.append(fill, budget);
    meter.setAttribute("role", "img");
    meter.setAttribute("aria-label", `${mebibytes(group.weight_bytes)} of weights, budget ${mebibytes(group.budget_bytes)}`);
    meter.title = meter.getAttribute("aria-label");
    box.append(meter);
  }
  const cores = make("div", "cores");
  const elements = new Map();
  for (const id of group.cores) {
    const core = make("span", "core");
    core.title = `core ${id}: not used`;
    elements.set(id, core);
    cores.append(core);
  }
  box.append(cores);
  const threads = group.threads.map((thread) => {
    const core = elements.get(thread.core) ?? make("span", "core");
    core.className = attends ? "core used attends" : "core used";
    core.title = `core ${thread.core}, CPU ${thread.cpu}, NUMA node ${thread.numa_node}: ${mebibytes(thread.weight_bytes)}`;
    return { core, title: core.title };
  });
  return { box, threads };
}

function drawSocket(socket, model) {
  const card = make("article", "socket");
  const head = make("div", "bar");
  const state = make("span", "pill", "");
  head.append(make("h3", "", socket.name), make("span", "muted", socket.role), state);
  card.append(head, make("p", "holds", layersText(socket)));
  if (socket.layers > 0) card.append(drawLayers(socket, model.layers));
  const groups = make("div", "groups");
  const threads = [];
  for (const group of socket.l3_groups) {
    const drawing = drawGroup(group, socket.role === "attention");
    groups.append(drawing.box);
    threads.push(...drawing.threads);
  }
  card.append(groups);
  const facts = make("p", "facts muted");
  card.append(facts);
  const slots = [];
  if (socket.slots > 0) {
    const strip = make("div", "slots");
    for (let i = 0; i < socket.slots; ++i) {
      const slot = make("span", "slot");
      slot.append(make("span", "level"));
      strip.append(slot);
      slots.push(slot);
    }
    strip.setAttribute("role", "img");
    strip.setAttribute("aria-label", `slots ${socket.first_slot} to ${socket.first_slot + socket.slots - 1}`);
    card.append(strip);
  }
  return { card, state, facts, threads, slots, firstSlot: socket.first_slot };
}

function draw(value) {
  $("model").textContent = `${value.model.name} · ${count(value.model.parameters)} parameters · ${value.model.layers} layers`;
  $("machine-name").textContent = [value.machine, value.isa].filter(Boolean).join(" · ");
  const area = $("sockets");
  area.replaceChildren();
  drawn = new Map();
  for (const server of new Set(value.sockets.map((socket) => socket.server))) {
    const box = make("div", "server");
    if (server) box.append(make("h3", "server-name muted", server));
    for (const socket of value.sockets.filter((s) => s.server === server)) {
      const drawing = drawSocket(socket, value.model);
      drawn.set(socket.name, drawing);
      box.append(drawing.card);
    }
    area.append(box);
  }
  $("links").replaceChildren(...value.links.map((link) => make("li", "", `${link.from} ⇄ ${link.to} · ${link.kind}`)));
  $("notes").replaceChildren(...value.notes.map((note) => make("li", "", note)));
}

// The growth of the socket's counters since the last request. Sums since its start would hide the present.
function lately(drawing, socket) {
  const before = drawing.before ?? { frames: 0, step_seconds_total: 0, wait_seconds_total: 0, link_wait_seconds_total: 0 };
  drawing.before = socket;
  const grown = (name) => socket[name] - before[name];
  const frames = grown("frames");
  if (frames <= 0) return ["idle"];
  const step = grown("step_seconds_total");
  const waiting = grown("wait_seconds_total") + grown("link_wait_seconds_total");
  return [`step ${duration(step / frames)}`, `${percent(waiting / (step + waiting))} waiting`];
}

function fillSocket(drawing, socket) {
  drawing.state.textContent = socket.state;
  drawing.state.className = `pill ${socket.state}`;
  const facts = [];
  if (socket.resident_share_live !== null) facts.push(`${percent(socket.resident_share_live)} resident`);
  else if (socket.resident_share !== null) facts.push(`${percent(socket.resident_share)} resident after loading`);
  facts.push(...lately(drawing, socket));
  if (socket.link_round_trip_seconds !== null) facts.push(`round trip ${duration(socket.link_round_trip_seconds)}`);
  drawing.facts.textContent = facts.join(" · ");
  drawing.threads.forEach((thread, i) => {
    const share =
      socket.thread_resident_share_live[i] ?? socket.resident_share_live ?? socket.thread_resident_share[i] ?? socket.resident_share;
    if (share === null) return;
    thread.core.title = `${thread.title}, ${percent(share)} resident`;
    thread.core.classList.toggle("away", share < 0.5);
  });
}

function fillSlots(status, context) {
  for (const drawing of drawn.values()) {
    drawing.slots.forEach((element, i) => {
      const slot = status.slots[drawing.firstSlot + i];
      if (!slot) return;
      element.className = `slot ${slot.state}`;
      element.title = `slot ${drawing.firstSlot + i}: ${slot.state}, ${slot.cached_tokens} of ${context} tokens`;
      element.firstChild.style.height = `${Math.min(100, (100 * slot.cached_tokens) / context)}%`;
    });
  }
}

// The bound below which `share` of the observations lie, interpolated in its bucket as Prometheus does.
function quantile(histogram, share) {
  let left = share * histogram.count;
  let lower = 0;
  for (const bucket of histogram.buckets) {
    if (bucket.count > 0 && left <= bucket.count) {
      return bucket.upper_seconds === null ? lower : lower + ((bucket.upper_seconds - lower) * left) / bucket.count;
    }
    left -= bucket.count;
    lower = bucket.upper_seconds ?? lower;
  }
  return undefined;
}

function fillHistogram(histogram) {
  const median = quantile(histogram, 0.5), p99 = quantile(histogram, 0.99);
  $("tpot-median").textContent = duration(median);
  $("tpot-p99").textContent = duration(p99);
  const figure = $("histogram");
  const used = histogram.buckets.map((bucket, i) => (bucket.count > 0 ? i : -1)).filter((i) => i >= 0);
  if (used.length === 0) return;
  const first = Math.max(0, used[0] - 2), last = Math.min(histogram.buckets.length - 1, used.at(-1) + 2);
  const most = Math.max(...histogram.buckets.map((bucket) => bucket.count));
  const bars = histogram.buckets.slice(first, last + 1).map((bucket) => {
    const label = bucket.upper_seconds === null ? "more" : duration(bucket.upper_seconds).replace(/^[\d.]+/, (digits) => String(Number(digits)));
    const column = make("div", "column");
    column.title = `${bucket.upper_seconds === null ? "more" : `up to ${label}`}: ${bucket.count}`;
    const bar = make("span", "column-bar");
    bar.style.height = `${(100 * bucket.count) / most}%`;
    const track = make("div", "track");
    track.append(bar);
    column.append(track, make("span", "column-label muted", label));
    return column;
  });
  figure.replaceChildren(...bars);
  figure.setAttribute("aria-label", `${histogram.count} requests, median ${duration(median)}, P99 ${duration(p99)}`);
}

function fillRates(status) {
  rates.push(status.generated_tokens_per_second);
  if (rates.length > kSparkPoints) rates.shift();
  const most = Math.max(1, ...rates);
  const points = rates.map((rate, i) => {
    const x = 120 - ((rates.length - 1 - i) * 120) / (kSparkPoints - 1);
    return `${x.toFixed(1)},${(27 - (26 * rate) / most).toFixed(1)}`;
  });
  $("spark").firstElementChild.setAttribute("points", points.join(" "));
  $("rate").textContent = count(status.generated_tokens_per_second);
  $("prompt-rate").textContent = count(status.prompt_tokens_per_second);
}

function fill(status) {
  const loading = status.state === "loading" ? ` ${percent(status.loading_share)}` : "";
  $("state").textContent = status.state + loading;
  $("state").className = `pill ${status.state}`;
  $("uptime").textContent = `${age(status.uptime_seconds)} · ${status.version}`;
  $("slots-used").textContent = `${status.slots_used} of ${status.slots.length}`;
  const kv = status.kv_chunks;
  $("kv-used").textContent = kv.total > 0 ? percent(kv.used / kv.total) : "–";
  $("queue").textContent = count(status.queue.waiting);
  fillRates(status);
  fillHistogram(status.tpot);
  if (!drawn) return;
  for (const socket of status.sockets) {
    const drawing = drawn.get(socket.name);
    if (drawing) fillSocket(drawing, socket);
  }
  fillSlots(status, plan.value.context);
}

function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

async function poll() {
  if (!document.hidden) {
    try {
      const status = await getJson("/v1/larder/status");
      if (!drawn && status.state !== "loading") draw(await plan.load());
      fill(status);
      await fillExperts(status.experts);
      trouble("");
    } catch (error) {
      drawn = null; // the server may come back with another plan
      $("state").textContent = "no answer";
      $("state").className = "pill failed";
      trouble(`Cannot read the machine's state: ${error.message}`);
    }
  }
  setTimeout(poll, kPollMs);
}
poll();
