// The heat map of a model with experts: a line for each layer, a cell for each expert, the brighter the more often its
// router chose it, by /v1/larder/experts.
import { $, getJson } from "./api.js";

const kFull = 4; // times the mean, for the brightest cell
let layers = [];

const sum = (numbers) => numbers.reduce((all, n) => all + n, 0);
const times = (layer, expert) => (layer.rows[expert] * layer.rows.length) / Math.max(1, sum(layer.rows));

function draw() {
  const canvas = $("experts-map");
  canvas.width = Math.max(...layers.map((layer) => layer.rows.length));
  canvas.height = layers.length;
  canvas.style.height = `${Math.min(24, Math.max(6, 0.5 * layers.length))}rem`;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  layers.forEach((layer, y) => {
    const mean = sum(layer.rows) / layer.rows.length;
    layer.rows.forEach((rows, x) => {
      context.globalAlpha = mean > 0 ? Math.min(1, rows / (kFull * mean)) : 0;
      context.fillRect(x, y, 1, 1);
    });
  });
}

function text(experts) {
  const read = `${experts.per_layer_and_step.toFixed(1)} of ${layers[0].rows.length} read in a step`;
  return `Experts: ${read} · ${(100 * experts.reuse).toFixed(0)} % chosen again for the next token`;
}

$("experts-map").addEventListener("mousemove", (event) => {
  const box = event.target.getBoundingClientRect();
  const layer = layers[Math.floor((layers.length * (event.clientY - box.top)) / box.height)];
  if (!layer) return;
  const expert = Math.floor((event.target.width * (event.clientX - box.left)) / box.width);
  if (!(expert in layer.rows)) return;
  event.target.title = `layer ${layer.layer}, expert ${expert}: ${layer.rows[expert].toLocaleString("en")} tokens, ` +
    `${times(layer, expert).toFixed(2)} times the mean`;
});

// experts: of /v1/larder/status; null: the model has none here.
export async function fillExperts(experts) {
  $("experts").hidden = !experts;
  if (!experts) return;
  layers = (await getJson("/v1/larder/experts")).layers;
  draw();
  $("experts-text").textContent = text(experts);
  const most = Math.max(...layers.map((layer) => layer.skew));
  $("experts-map").setAttribute("aria-label",
    `${layers.length} layers with experts; the busiest expert of one has ${most.toFixed(1)} times the mean`);
}
