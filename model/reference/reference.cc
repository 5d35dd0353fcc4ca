#include "model/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace larder::model::inline reference {
namespace {

// Four sums hide the latency of the addition, which matters because all tests of correctness run
// this. In double the order of additions makes no difference that matters here.
double Dot(const float* a, const float* b, size_t n) {
  double sum[4] = {};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (size_t j = 0; j < 4; ++j) sum[j] += static_cast<double>(a[i + j]) * b[i + j];
  }
  for (; i < n; ++i) sum[0] += static_cast<double>(a[i]) * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// y = x / rms(x) * w (Zhang & Sennrich 2019, eq. 4). y may be x.
void RmsNorm(std::span<const float> x, std::span<const float> w, float epsilon,
             std::span<float> y) {
  const double mean_square = Dot(x.data(), x.data(), x.size()) / static_cast<double>(x.size());
  const double r = 1.0 / std::sqrt(mean_square + epsilon);
  for (size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(x[i] * r * w[i]);
}

// y = (x - mean) / deviation * w (Ba 2016, arXiv 1607.06450, eq. 4).
void LayerNorm(std::span<const float> x, std::span<const float> w, float epsilon,
               std::span<float> y) {
  const auto n = static_cast<double>(x.size());
  double mean = 0.0, squares = 0.0;
  for (const float v : x) mean += v / n;
  for (const float v : x) squares += (v - mean) * (v - mean);
  const double r = 1.0 / std::sqrt(squares / n + epsilon);
  for (size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>((x[i] - mean) * r * w[i]);
}

void Norm(NormKind kind, std::span<const float> x, std::span<const float> w, float epsilon,
          std::span<float> y) {
  kind == NormKind::kRms ? RmsNorm(x, w, epsilon, y) : LayerNorm(x, w, epsilon, y);
}

std::vector<float> NormOf(NormKind kind, const std::vector<float>& x, const std::vector<float>& w,
                          float epsilon) {
  std::vector<float> y(x.size());
  Norm(kind, x, w, epsilon, y);
  return y;
}

double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double Silu(double x) { return x / (1.0 + std::exp(-x)); }

double GatedUp(GateKind kind, double g, double up) {
  switch (kind) {
    case GateKind::kSilu:
      return Silu(g) * up;
    case GateKind::kGeluTanh:  // Hendrycks & Gimpel 2016 (arXiv 1606.08415)
      return 0.5 * g *
             (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g))) * up;
    case GateKind::kClamped:
      g = std::min(g, 7.0);
      return g / (1.0 + std::exp(-1.702 * g)) * (std::clamp(up, -7.0, 7.0) + 1.0);
    case GateKind::kSquaredRelu:
      return std::max(0.0, up) * up;
  }
  return 0.0;
}

// Each `size` elements by themselves. The weights are those of all, or of one.
void NormHeads(NormKind kind, std::span<float> heads, std::span<const float> w, size_t size,
               float epsilon) {
  for (size_t i = 0; i < heads.size(); i += size) {
    const std::span<float> head = heads.subspan(i, size);
    Norm(kind, head, w.subspan(i % w.size(), size), epsilon, head);
  }
}

void RoundHeads(std::span<float> heads, size_t head_size, Scale scale) {
  for (size_t i = 0; i < heads.size(); i += head_size)
    RoundThroughQ8(heads.subspan(i, head_size), scale);
}

void Add(std::vector<float>& y, const std::vector<float>& x) {
  for (size_t i = 0; i < x.size(); ++i) y[i] += x[i];
}

// Leaves the experts of the chosen groups in `order`.
void KeepBestGroups(const ExpertSpec& spec, const std::vector<double>& by,
                    std::vector<size_t>& order) {
  const size_t of_group = spec.count / spec.groups;
  std::vector<double> sums(spec.groups);
  std::vector<size_t> groups(spec.groups);
  std::iota(groups.begin(), groups.end(), size_t{0});
  for (const size_t g : groups) {
    std::vector<double> sorted(by.begin() + static_cast<ptrdiff_t>(g * of_group),
                               by.begin() + static_cast<ptrdiff_t>((g + 1) * of_group));
    std::ranges::sort(sorted, std::greater());
    sums[g] = sorted[0] + sorted[1];
  }
  std::ranges::stable_sort(groups, [&](size_t a, size_t b) { return sums[a] > sums[b]; });
  groups.resize(spec.groups_used);
  std::erase_if(order,
                [&](size_t e) { return std::ranges::find(groups, e / of_group) == groups.end(); });
}

std::vector<float> ReadNorm(const GgufFile& file, const std::string& name) {
  const TensorInfo& tensor = file.Tensor(name);
  std::vector<float> values(tensor.cols);
  file.ReadRowsF32(tensor, 0, 1, values.data());
  return values;
}

}  // namespace

void RoundThroughQ8(std::span<float> x, Scale scale) {
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const std::span<float> block = x.subspan(begin, std::min(kBlock, x.size() - begin));
    float amax = 0;
    for (const float v : block) amax = std::max(amax, std::fabs(v));
    const float d = amax / 127.0f;
    const float stored_d = scale == Scale::kF16 ? F16ToF32(F32ToF16(d)) : d;
    for (float& v : block) v = d > 0 ? std::nearbyintf(v / d) * stored_d : 0.0f;
  }
}

void ReferenceModel::ReadRow(const GgufFile& file, const TensorInfo& tensor, size_t row,
                             float* values) const {
  if (!options_.weights_as_q8_0) {
    file.ReadRowsF32(tensor, row, 1, values);
    return;
  }
  std::vector<Q8Block> blocks(CeilDiv(tensor.cols, kBlock));
  file.ReadRowsQ8_0(tensor, row, 1, blocks.data());
  DequantizeQ8_0(blocks.data(), std::span(values, tensor.cols));
}

ReferenceModel::Matrix ReferenceModel::ReadMatrix(const GgufFile& file,
                                                  const std::string& name) const {
  const TensorInfo& tensor = file.Tensor(name);
  Matrix m{std::vector<float>(tensor.rows * tensor.cols), tensor.rows, tensor.cols};
  for (size_t row = 0; row < m.rows; ++row) ReadRow(file, tensor, row, &m.values[row * m.cols]);
  return m;
}

ReferenceModel::Matrix ReferenceModel::ReadMatrix(const GgufFile& file, size_t layer,
                                                  const TensorSpec& spec) const {
  Matrix m{std::vector<float>(spec.rows * spec.cols), spec.rows, spec.cols};
  for (size_t row = 0; row < m.rows; ++row) {
    const TensorInfo& tensor = file.Tensor(config_.TensorName(layer, spec, spec.TensorOf(row)));
    ReadRow(file, tensor, spec.RowInFile(row), &m.values[row * m.cols]);
  }
  return m;
}

ReferenceModel ReferenceModel::Make(std::shared_ptr<const GgufFile> file,
                                    ReferenceOptions options) {
  ReferenceModel model;
  model.config_ = ReadModelConfig(*file);
  model.config_ = ForContext(
      model.config_, options.context != 0 ? options.context : model.config_.trained_context);
  model.options_ = options;
  model.embedding_ = model.ReadMatrix(*file, kEmbeddingTensor);
  if (!model.config_.tied_embeddings) model.head_ = model.ReadMatrix(*file, kHeadTensor);
  model.output_norm_ = ReadNorm(*file, OutputNormTensor(model.config_));
  if (model.config_.input_size != 0) {
    model.input_embedding_ = model.ReadMatrix(*file, kInputEmbeddingTensor);
    model.input_matrix_ = model.ReadMatrix(*file, kInputMatrixTensor);
    model.input_norm_ = ReadNorm(*file, kInputNormTensor);
  }
  for (size_t i = 0; i < model.config_.layers; ++i) {
    Layer& layer = model.layers_.emplace_back();
    layer.index = i;
    for (const TensorSpec& tensor : model.config_.layer(i).tensors) {
      layer.tensors[static_cast<size_t>(tensor.role)] =
          tensor.kind == TensorKind::kMatrix
              ? model.ReadMatrix(*file, i, tensor)
              : Matrix{model::ReadVector(*file, model.config_, i, tensor.role), tensor.rows,
                       tensor.cols};
    }
  }
  return model;
}

std::vector<float> ReferenceModel::Product(const Matrix& m, std::vector<float> x) const {
  return Product(m, 0, m.rows, std::move(x));
}

std::vector<float> ReferenceModel::Product(const Matrix& m, size_t first, size_t rows,
                                           std::vector<float> x) const {
  LARDER_CHECK(x.size() == m.cols, "{} values into {} columns", x.size(), m.cols);
  if (options_.activations_q8) RoundThroughQ8(x, Scale::kF32);
  std::vector<float> y(rows);
  for (size_t r = 0; r < rows; ++r)
    y[r] = static_cast<float>(Dot(&m.values[(first + r) * m.cols], x.data(), m.cols));
  return y;
}

// Su et al. 2021, eq. 34. Elements of a head from rotary_dim on are not changed.
void ReferenceModel::Rotate(size_t layer, std::span<float> heads, size_t position) const {
  const LayerSpec& spec = config_.layer(layer);
  const size_t pairs = spec.rotary.dim / 2;
  if (pairs == 0) return;
  const bool interleaved = spec.rotary.pairing == RopePairing::kInterleaved;
  const float* table = &rope_[config_.KindOf(layer)][position * spec.rotary.dim];
  for (size_t begin = 0; begin < heads.size(); begin += spec.sizes.head_size) {
    for (size_t i = 0; i < pairs; ++i) {
      float& a = heads[begin + (interleaved ? 2 * i : i)];
      float& b = heads[begin + (interleaved ? 2 * i + 1 : i + pairs)];
      const double re = a, im = b, cos = table[2 * i], sin = table[2 * i + 1];
      a = static_cast<float>(re * cos - im * sin);
      b = static_cast<float>(re * sin + im * cos);
    }
  }
}

void ReferenceModel::Run(const LayerOp& op, Layer& layer, State& s) {
  switch (op.kind) {
    case OpKind::kNorm:
      s.in = Norm(s.x, layer.of(op.norm), layer);
      return;
    case OpKind::kQkv:
      if (config_.layer(layer.index).latent.any()) {
        ProjectLatent(layer, s);
        return;
      }
      s.q = Product(layer.matrix(TensorRole::kQ), s.in);
      s.k.clear();
      s.v.clear();
      if (!config_.layer(layer.index).kv_of) {
        s.k = Product(layer.matrix(TensorRole::kK), s.in);
        s.v = Product(layer.matrix(TensorRole::kV), s.in);
      }
      if (config_.layer(layer.index).output_gate) SplitGates(layer, s);
      if (layer.has(TensorRole::kStateQ)) {
        s.state_q = Product(layer.matrix(TensorRole::kStateQ), s.in);
        s.state_k = Product(layer.matrix(TensorRole::kStateK), s.in);
        s.state_v = Product(layer.matrix(TensorRole::kStateV), s.in);
      }
      if (layer.has(TensorRole::kOutputGate)) {
        s.gate = Product(layer.matrix(TensorRole::kOutputGate), s.in);
        s.alpha = Product(layer.matrix(TensorRole::kAlpha), s.in);
        if (layer.has(TensorRole::kBeta)) s.beta = Product(layer.matrix(TensorRole::kBeta), s.in);
      }
      Add(s.q, layer.of(TensorRole::kQBias));
      Add(s.k, layer.of(TensorRole::kKBias));
      Add(s.v, layer.of(TensorRole::kVBias));
      return;
    case OpKind::kAttention:
      Attend(layer, s);
      return;
    case OpKind::kO:
      AddToResidual(op, layer, TensorRole::kO, TensorRole::kOBias, std::move(s.attended), s);
      return;
    case OpKind::kGate: {  // Shazeer 2020 (arXiv 2002.05202), eq. 6
      if (config_.layer(layer.index).experts.count != 0) return;  // with their kDown
      std::vector<float> up = Product(layer.matrix(TensorRole::kUp), s.in);
      Add(up, layer.of(TensorRole::kUpBias));
      std::vector<float> gate =
          layer.has(TensorRole::kGate) ? Product(layer.matrix(TensorRole::kGate), s.in) : up;
      Add(gate, layer.of(TensorRole::kGateBias));
      s.hidden = Gated(layer, std::move(gate), up);
      return;
    }
    case OpKind::kDown:
      AddToResidual(op, layer, TensorRole::kDown, TensorRole::kDownBias, std::move(s.hidden), s);
      return;
    case OpKind::kInput:
      s.in = s.x;
      return;
    case OpKind::kDeltaRule:
      ApplyDeltaRule(layer, s);
      return;
    case OpKind::kConvolution:
      ApplyConvolution(layer, s);
      return;
    case OpKind::kMamba2:
      ApplyMamba2(layer, s);
      return;
    case OpKind::kInputGate: {
      const auto first =
          s.inputs.begin() + static_cast<ptrdiff_t>(layer.index * config_.input_size);
      s.hidden = Gated(layer, Product(layer.matrix(TensorRole::kInputGate), s.in),
                       {first, first + static_cast<ptrdiff_t>(config_.input_size)});
      return;
    }
    case OpKind::kInputOut:
      AddToResidual(op, layer, TensorRole::kInputOut, std::nullopt, std::move(s.hidden), s);
      return;
  }
}

std::vector<float> ReferenceModel::Norm(const std::vector<float>& x, const std::vector<float>& w,
                                        const Layer& layer) const {
  const LayerSpec& spec = config_.layer(layer.index);
  return NormOf(spec.norm, x, w, spec.norm_epsilon);
}

void ReferenceModel::AddToResidual(const LayerOp& op, const Layer& layer, TensorRole matrix,
                                   std::optional<TensorRole> bias, std::vector<float> in,
                                   State& s) {
  const bool experts = matrix == TensorRole::kDown && config_.layer(layer.index).experts.count != 0;
  std::vector<float> y =
      experts ? RunExperts(layer, s) : Product(layer.matrix(matrix), std::move(in));
  if (matrix == TensorRole::kO && layer.has(TensorRole::kStateO))
    Add(y, Product(layer.matrix(TensorRole::kStateO), std::move(s.state_out)));
  if (!experts && bias) Add(y, layer.of(*bias));  // theirs are in what they give
  if (op.post_norm) y = Norm(y, layer.of(*op.post_norm), layer);
  const double scale = op.output_scale ? layer.of(*op.output_scale)[0] : 1.0;
  for (size_t i = 0; i < y.size(); ++i)
    s.x[i] = static_cast<float>((s.x[i] + config_.scales.residual * y[i]) * scale);
}

std::vector<float> ReferenceModel::Gated(const Layer& layer, std::vector<float> gate,
                                         const std::vector<float>& up) const {
  const GateKind kind = config_.layer(layer.index).gate;
  for (size_t i = 0; i < gate.size(); ++i)
    gate[i] = static_cast<float>(GatedUp(kind, gate[i], up[i]));
  return gate;
}

std::vector<std::pair<size_t, double>> ReferenceModel::Choose(const Layer& layer,
                                                              std::vector<float> in) {
  const ExpertSpec& spec = config_.layer(layer.index).experts;
  if (spec.beside_ffn) {
    RmsNorm(in, layer.of(TensorRole::kRouterScale), config_.layer(layer.index).norm_epsilon, in);
    for (float& v : in) v = static_cast<float>(v / std::sqrt(static_cast<double>(in.size())));
  }
  const Matrix& router = layer.matrix(TensorRole::kRouter);
  std::vector<double> p(spec.count);
  for (size_t e = 0; e < spec.count; ++e)
    p[e] = Dot(&router.values[e * router.cols], in.data(), router.cols);
  const std::vector<float>& logit_bias = layer.of(TensorRole::kRouterLogitBias);
  for (size_t e = 0; e < logit_bias.size(); ++e) p[e] += logit_bias[e];
  if (spec.gating == ExpertGating::kSigmoid) {
    for (double& l : p) l = 1.0 / (1.0 + std::exp(-l));
  } else {
    const double max = *std::ranges::max_element(p);
    double all = 0;
    for (double& l : p) all += l = std::exp(l - max);
    for (double& l : p) l /= all;
  }
  std::vector<double> by = p;
  const std::vector<float>& bias = layer.of(TensorRole::kRouterBias);
  for (size_t e = 0; e < bias.size(); ++e) by[e] += bias[e];
  std::vector<size_t> order(spec.count);
  std::iota(order.begin(), order.end(), size_t{0});
  if (spec.groups > 1) KeepBestGroups(spec, by, order);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return by[a] > by[b]; });
  const double margin =
      order.size() > spec.used ? by[order[spec.used - 1]] - by[order[spec.used]] : 1.0;
  order.resize(spec.used);
  std::ranges::sort(order);
  routed_.push_back({layer.index, order, margin});
  double sum = 0;
  for (const size_t e : order) sum += p[e];
  std::vector<std::pair<size_t, double>> chosen;
  chosen.reserve(order.size());
  for (const size_t e : order)
    chosen.emplace_back(e, (spec.normalise ? p[e] / sum : p[e]) * spec.scale);
  const std::vector<float>& scales = layer.of(TensorRole::kExpertScale);
  for (auto& [e, weight] : chosen) weight *= scales.empty() ? 1.0 : scales[e];
  return chosen;
}

std::vector<float> ReferenceModel::RunExperts(const Layer& layer, const State& s) {
  const LayerSpec& spec = config_.layer(layer.index);
  const size_t ffn = spec.sizes.ffn;
  std::vector<double> sum(spec.sizes.dim);
  const auto add = [&](double weight, const std::vector<float>& y) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * y[i];
  };
  // rows of an expert's matrix * x, plus its biases if there are any
  const auto product = [&](TensorRole role, TensorRole bias, size_t e, size_t rows,
                           const std::vector<float>& x) {
    std::vector<float> y = Product(layer.matrix(role), e * rows, rows, x);
    const std::vector<float>& all = layer.of(bias);
    for (size_t i = 0; !all.empty() && i < rows; ++i) y[i] += all[e * rows + i];
    return y;
  };
  const bool beside = spec.experts.beside_ffn;
  const std::vector<float> in = beside ? Norm(s.x, layer.of(TensorRole::kExpertNorm), layer) : s.in;
  for (const auto& [e, weight] : Choose(layer, beside ? s.x : in)) {
    const TensorRole gate = spec.gated() ? TensorRole::kGate : TensorRole::kUp;
    const std::vector<float> hidden =
        Gated(layer, product(gate, TensorRole::kGateBias, e, ffn, in),
              product(TensorRole::kUp, TensorRole::kUpBias, e, ffn, in));
    add(weight, product(TensorRole::kDown, TensorRole::kDownBias, e, sum.size(), hidden));
  }
  if (beside) {
    const std::vector<float> y =
        Norm({sum.begin(), sum.end()}, layer.of(TensorRole::kPostExpertNorm), layer);
    sum.assign(y.begin(), y.end());
  }
  if (spec.experts.shared_ffn != 0) {
    const std::vector<float>& router = layer.of(TensorRole::kSharedRouter);
    const double weight =
        router.empty() ? 1.0
                       : 1.0 / (1.0 + std::exp(-Dot(router.data(), s.in.data(), s.in.size())));
    const TensorRole gate = spec.gated() ? TensorRole::kSharedGate : TensorRole::kSharedUp;
    std::vector<float> y = Product(layer.matrix(TensorRole::kSharedDown),
                                   Gated(layer, Product(layer.matrix(gate), s.in),
                                         Product(layer.matrix(TensorRole::kSharedUp), s.in)));
    if (beside) y = Norm(y, layer.of(TensorRole::kPostSharedNorm), layer);
    add(weight, y);
  }
  return {sum.begin(), sum.end()};
}

// LatentSpec: the one KV head's key and value, and the queries that meet them.
void ReferenceModel::ProjectLatent(const Layer& layer, State& s) const {
  const LayerSpec& spec = config_.layer(layer.index);
  const LatentSpec& latent = spec.latent;
  const size_t rotated = spec.rotary.dim, of_query = latent.key_size + rotated;
  std::vector<float> from = s.in;
  if (latent.query_rank != 0) {
    from = Product(layer.matrix(TensorRole::kQueryDown), s.in);
    RmsNorm(from, layer.of(TensorRole::kQueryDownNorm), spec.norm_epsilon, from);
  }
  const std::vector<float> queries = Product(layer.matrix(TensorRole::kQ), std::move(from));
  const auto part = [](const std::vector<float>& x, size_t first, size_t count) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
    return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  s.q.clear();
  for (size_t h = 0; h < spec.sizes.heads; ++h) {
    const std::vector<float> turns = part(queries, h * of_query + latent.key_size, rotated);
    const std::vector<float> meets =
        Product(layer.matrix(TensorRole::kKeyUp), h * latent.rank, latent.rank,
                part(queries, h * of_query, latent.key_size));
    s.q.insert(s.q.end(), turns.begin(), turns.end());
    s.q.insert(s.q.end(), meets.begin(), meets.end());
  }
  const std::vector<float> down = Product(layer.matrix(TensorRole::kK), s.in);
  s.v = part(down, 0, latent.rank);
  RmsNorm(s.v, layer.of(TensorRole::kLatentNorm), spec.norm_epsilon, s.v);
  s.k = part(down, latent.rank, rotated);
  s.k.insert(s.k.end(), s.v.begin(), s.v.end());
}

std::vector<float> ReferenceModel::InputsOf(TokenId token, const std::vector<float>& x) const {
  if (config_.input_size == 0) return {};
  const auto size = static_cast<double>(config_.input_size), dim = static_cast<double>(config_.dim);
  std::vector<float> inputs = Product(input_matrix_, x);
  for (float& p : inputs) p = static_cast<float>(p / std::sqrt(dim));
  NormHeads(NormKind::kRms, inputs, input_norm_, input_norm_.size(), config_.norm_epsilon);
  const float* const row = &input_embedding_.values[static_cast<size_t>(token) * inputs.size()];
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = static_cast<float>((inputs[i] + std::sqrt(size) * row[i]) / std::sqrt(2.0));
  return inputs;
}

void ReferenceModel::SplitGates(const Layer& layer, State& s) const {
  const size_t size = config_.layer(layer.index).sizes.head_size;
  const std::vector<float> both = std::exchange(s.q, {});
  s.gate.clear();
  for (auto at = both.begin(); at != both.end();) {
    for (std::vector<float>* half : {&s.q, &s.gate}) {
      half->insert(half->end(), at, at + static_cast<ptrdiff_t>(size));
      at += static_cast<ptrdiff_t>(size);
    }
  }
}

std::vector<double> ReferenceModel::Convolve(Layer& layer, const State& s,
                                             const std::vector<float>& inputs) const {
  const size_t taps = config_.layer(layer.index).recurrence.taps, channels = inputs.size();
  if (s.position == 0) layer.inputs.assign((taps - 1) * channels, 0.0f);
  layer.inputs.insert(layer.inputs.end(), inputs.begin(), inputs.end());
  const std::vector<float>& w = layer.of(TensorRole::kConvolution);  // [channel][tap]
  std::vector<double> sums(channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t j = 0; j < taps; ++j)
      sums[c] += static_cast<double>(w[c * taps + j]) * layer.inputs[j * channels + c];
  }
  layer.inputs.erase(layer.inputs.begin(), layer.inputs.begin() + static_cast<ptrdiff_t>(channels));
  return sums;
}

// StateKind::kConvolution of model/layer/layer_spec.h.
void ReferenceModel::ApplyConvolution(Layer& layer, State& s) const {
  std::vector<float> inputs = s.q;
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] *= s.v[i];
  const std::vector<double> sums = Convolve(layer, s, inputs);
  s.attended.resize(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) s.attended[i] = static_cast<float>(s.k[i] * sums[i]);
}

// StateKind::kDeltaRule of model/layer/layer_spec.h, token by token, as the definition's recurrent
// form.
void ReferenceModel::ApplyDeltaRule(Layer& layer, State& s) const {
  const LayerSpec& spec = config_.layer(layer.index);
  const size_t key_size = spec.recurrence.key_size, size = spec.sizes.head_size;
  const size_t heads = spec.sizes.heads;
  std::vector<float> inputs = s.q;
  inputs.insert(inputs.end(), s.k.begin(), s.k.end());
  inputs.insert(inputs.end(), s.v.begin(), s.v.end());
  if (s.position == 0) layer.state.assign(heads * key_size * size, 0.0);
  const std::vector<double> sums = Convolve(layer, s, inputs);
  for (size_t c = 0; c < sums.size(); ++c) inputs[c] = static_cast<float>(Silu(sums[c]));
  const auto unit = [&](const float* x, double factor) {
    const double r = factor / std::sqrt(Dot(x, x, key_size) + 1e-6);
    std::vector<double> y(x, x + key_size);
    for (double& v : y) v *= r;
    return y;
  };
  s.attended.assign(heads * size, 0.0f);
  const auto key_heads = spec.sizes.kv_heads;
  for (size_t key_head = 0; key_head < key_heads; ++key_head) {
    const std::vector<double> q =
        unit(&inputs[key_head * key_size], 1.0 / std::sqrt(static_cast<double>(key_size)));
    const std::vector<double> k = unit(&inputs[(key_heads + key_head) * key_size], 1.0);
    for (size_t i = 0; i < spec.sizes.group(); ++i) {
      const size_t head = ValueHead(spec, key_head, i);
      const double x = static_cast<double>(s.alpha[head]) + layer.of(TensorRole::kDecayBias)[head];
      const double decay = std::exp(layer.of(TensorRole::kDecay)[head] * Softplus(x));
      const double rate = 1.0 / (1.0 + std::exp(-static_cast<double>(s.beta[head])));
      double* const state = &layer.state[head * key_size * size];
      const float* const v = &inputs[2 * key_heads * key_size + head * size];
      for (size_t c = 0; c < size; ++c) {
        double predicted = 0, out = 0;
        for (size_t r = 0; r < key_size; ++r) {
          state[r * size + c] *= decay;
          predicted += state[r * size + c] * k[r];
        }
        for (size_t r = 0; r < key_size; ++r) {
          state[r * size + c] += k[r] * rate * (v[c] - predicted);
          out += state[r * size + c] * q[r];
        }
        s.attended[head * size + c] = static_cast<float>(out);
      }
    }
  }
  NormHeads(NormKind::kRms, s.attended, layer.of(TensorRole::kHeadNorm), size, spec.norm_epsilon);
  for (size_t i = 0; i < s.attended.size(); ++i) {
    const double z = s.gate[i];
    s.attended[i] = static_cast<float>(s.attended[i] * z / (1.0 + std::exp(-z)));
  }
}

// StateKind::kMamba2 of model/layer/layer_spec.h, token by token, as the definition's recurrent
// form.
void ReferenceModel::ApplyMamba2(Layer& layer, State& s) const {
  const LayerSpec& spec = config_.layer(layer.index);
  const LayerSizes sizes = spec.state_sizes();
  const size_t state_size = spec.recurrence.key_size, size = sizes.head_size;
  const size_t heads = sizes.heads, groups = sizes.kv_heads;
  const bool beside = spec.attends();
  std::vector<float> inputs = beside ? s.state_v : s.v;  // the file's order of channels: x, B, C
  for (const std::vector<float>* part : {beside ? &s.state_k : &s.k, beside ? &s.state_q : &s.q})
    inputs.insert(inputs.end(), part->begin(), part->end());
  if (s.position == 0) layer.state.assign(heads * state_size * size, 0.0);
  const std::vector<double> sums = Convolve(layer, s, inputs);
  for (size_t c = 0; c < sums.size(); ++c) {
    const auto bias = static_cast<double>(layer.of(TensorRole::kConvolutionBias)[c]);
    inputs[c] = static_cast<float>(Silu(sums[c] + bias));
  }
  std::vector<float>& y_of = beside ? s.state_out : s.attended;
  y_of.assign(heads * size, 0.0f);
  for (size_t head = 0; head < heads; ++head) {
    const float* const in = &inputs[heads * size + head / sizes.group() * state_size];
    const float* const out = in + groups * state_size;
    const double step = std::max(
        spec.recurrence.least_step,
        Softplus(static_cast<double>(s.alpha[head]) + layer.of(TensorRole::kDecayBias)[head]));
    const double decay = std::exp(layer.of(TensorRole::kDecay)[head] * step);
    for (size_t c = 0; c < size; ++c) {
      const auto x = static_cast<double>(inputs[head * size + c]);
      double y = layer.of(TensorRole::kSkip)[head] * x;
      double* const state = &layer.state[(head * size + c) * state_size];
      for (size_t i = 0; i < state_size; ++i) {
        state[i] = decay * state[i] + step * x * in[i];
        y += state[i] * out[i];
      }
      y_of[head * size + c] = static_cast<float>(y * Silu(s.gate[head * size + c]));
    }
  }
  if (!layer.has(TensorRole::kGroupNorm)) return;
  const size_t of_group = heads * size / groups;
  for (size_t g = 0; g < groups; ++g) {
    const auto part = std::span(y_of).subspan(g * of_group, of_group);
    RmsNorm(part, std::span(layer.of(TensorRole::kGroupNorm)).subspan(g * of_group, of_group),
            spec.norm_epsilon, part);
  }
}

void ReferenceModel::NormQueriesAndKeys(Layer& layer, State& s) const {
  const LayerSpec& spec = config_.layer(layer.index);
  const auto norm = [&](std::vector<float>& heads, TensorRole role) {
    const size_t size = spec.qk_norm == QkNorm::kRow ? heads.size() : spec.sizes.head_size;
    NormHeads(spec.norm, heads, layer.of(role), size, spec.norm_epsilon);
  };
  norm(s.q, TensorRole::kQNorm);
  norm(s.k, TensorRole::kKNorm);
}

// Vaswani et al. 2017, eq. 1, with `group` query heads per key/value head, over the last `window`
// positions.
void ReferenceModel::Attend(Layer& layer, State& s) {
  const LayerSpec& spec = config_.layer(layer.index);
  const LayerSizes& sizes = spec.sizes;
  const bool after_rope = spec.qk_norm == QkNorm::kHeadAfterRope;
  if (spec.qk_norm != QkNorm::kNone && !after_rope) NormQueriesAndKeys(layer, s);
  Rotate(layer.index, s.q, s.position);
  Rotate(layer.index, s.k, s.position);
  if (after_rope) NormQueriesAndKeys(layer, s);
  if (spec.value_norm)
    NormHeads(NormKind::kRms, s.v, std::vector<float>(sizes.head_size, 1.0f), sizes.head_size,
              spec.norm_epsilon);
  const size_t lengths = s.position / spec.temperature.length;
  const double warmth = 1.0 + spec.temperature.beta * std::log(1.0 + static_cast<double>(lengths));
  if (warmth != 1.0) {
    for (float& q : s.q) q = static_cast<float>(q * warmth);
  }
  const LatentSpec& latent = spec.latent;
  const size_t head_size = sizes.head_size, stride = sizes.kv_rows();
  const size_t value_size = latent.any() ? latent.rank : head_size;
  const size_t value_stride = sizes.kv_heads * value_size;
  if (options_.activations_q8) RoundHeads(s.q, head_size, Scale::kF32);
  if (options_.kv_q8) {
    RoundHeads(s.k, head_size, Scale::kF16);
    RoundHeads(s.v, value_size, Scale::kF16);
  }
  Layer& of = spec.kv_of ? layers_[*spec.kv_of] : layer;  // whose keys and values these are
  if (!spec.kv_of) {
    of.keys.resize(s.position * stride);
    of.values.resize(s.position * value_stride);
    of.keys.insert(of.keys.end(), s.k.begin(), s.k.end());
    of.values.insert(of.values.end(), s.v.begin(), s.v.end());
  }

  s.attended.assign(sizes.heads * value_size, 0.0f);
  const size_t count = spec.window == 0 ? s.position + 1 : std::min(spec.window, s.position + 1);
  const size_t first = s.position + 1 - count;
  std::vector<double> weights(count), sums(value_size);
  const std::vector<float>& sinks = layer.of(TensorRole::kSinks);
  for (size_t h = 0; h < sizes.heads; ++h) {
    const size_t kv = h / sizes.group();
    for (size_t t = 0; t < count; ++t) {
      weights[t] =
          Dot(&s.q[h * head_size], &of.keys[(first + t) * stride + kv * head_size], head_size) /
          spec.attention_divisor;
      if (spec.score_cap != 0.0)
        weights[t] = spec.score_cap * std::tanh(weights[t] / spec.score_cap);
    }
    double max = *std::max_element(weights.begin(), weights.end()), all = 0;
    if (!sinks.empty()) {
      max = std::max(max, static_cast<double>(sinks[h]));
      all = std::exp(sinks[h] - max);
    }
    for (double& w : weights) all += w = std::exp(w - max);
    std::fill(sums.begin(), sums.end(), 0.0);
    for (size_t t = 0; t < count; ++t) {
      const float* const value = &of.values[(first + t) * value_stride + kv * value_size];
      for (size_t i = 0; i < value_size; ++i) sums[i] += weights[t] * value[i];
    }
    for (size_t i = 0; i < value_size; ++i)
      s.attended[h * value_size + i] = static_cast<float>(sums[i] / all);
  }
  if (latent.any()) {
    const std::vector<float> latents = std::exchange(s.attended, {});
    for (size_t h = 0; h < sizes.heads; ++h) {
      const auto head = latents.begin() + static_cast<std::ptrdiff_t>(h * latent.rank);
      const std::vector<float> values =
          Product(layer.matrix(TensorRole::kValueUp), h * latent.value_size, latent.value_size,
                  {head, head + static_cast<std::ptrdiff_t>(latent.rank)});
      s.attended.insert(s.attended.end(), values.begin(), values.end());
    }
  }
  for (size_t i = 0; spec.output_gate && i < s.attended.size(); ++i) {
    s.attended[i] =
        static_cast<float>(s.attended[i] / (1.0 + std::exp(-static_cast<double>(s.gate[i]))));
  }
}

std::vector<float> ReferenceModel::Forward(TokenId token, size_t position) {
  if (token < 0 || static_cast<size_t>(token) >= config_.vocab) {
    throw Error("token {} is outside the model's vocabulary: expected 0 to {}", token,
                config_.vocab - 1);
  }
  LARDER_CHECK(position <= positions_, "position {} after {} positions", position, positions_);
  LARDER_CHECK(!config_.recurrent() || position == 0 || position == positions_,
               "position {} of a state after {} positions", position, positions_);
  routed_.clear();
  if (position >= rope_positions_) {
    rope_positions_ = std::max<size_t>(256, 2 * position);
    rope_.clear();
    for (const LayerSpec& kind : config_.kinds)
      rope_.push_back(RopeTable(kind.rotary, rope_positions_));
  }
  const auto row =
      embedding_.values.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(token) * config_.dim);
  State state{.position = position,
              .x = {row, row + static_cast<ptrdiff_t>(config_.dim)},
              .in = {},
              .q = {},
              .k = {},
              .v = {},
              .attended = {},
              .hidden = {},
              .gate = {},
              .alpha = {},
              .beta = {},
              .state_q = {},
              .state_k = {},
              .state_v = {},
              .state_out = {},
              .inputs = {}};
  if (config_.scales.embedding != 1.0) {
    for (float& x : state.x) x = static_cast<float>(x * config_.scales.embedding);
  }
  state.inputs = InputsOf(token, state.x);
  for (Layer& layer : layers_) {
    for (const LayerOp& op : config_.layer(layer.index).ops) Run(op, layer, state);
  }
  positions_ = position + 1;
  std::vector<float> logits =
      Product(config_.tied_embeddings ? embedding_ : head_,
              NormOf(config_.norm, state.x, output_norm_, config_.norm_epsilon));
  if (config_.scales.logits != 1.0) {
    for (float& logit : logits) logit = static_cast<float>(logit * config_.scales.logits);
  }
  if (const double cap = config_.scales.logit_cap; cap != 0.0) {
    for (float& logit : logits) logit = static_cast<float>(cap * std::tanh(logit / cap));
  }
  return logits;
}

std::vector<float> ReferenceModel::TeacherForced(std::span<const TokenId> tokens) {
  Reset();
  std::vector<float> logits;
  logits.reserve(tokens.size() * config_.vocab);
  for (const TokenId token : tokens) {
    const std::vector<float> row = Forward(token, positions_);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

}  // namespace larder::model::reference
