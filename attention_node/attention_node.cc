#include "attention_node/attention_node.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "attention_node/attention_kernels.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/step/step_kind.h"

namespace larder::attention_node {
namespace {

using kernels::kBlock;
using kernels::kChunkStride;
using model::StepKind;
using threadpool::Step;

std::vector<float> SplitTable(const model::RotarySpec& rotary, size_t positions) {
  const std::vector<float> table = model::RopeTable(rotary, positions);
  const size_t half = rotary.dim / 2;
  std::vector<float> split(table.size());
  for (size_t p = 0; p < positions; ++p) {
    for (size_t i = 0; i < half; ++i) {
      split[p * rotary.dim + i] = table[p * rotary.dim + 2 * i];
      split[p * rotary.dim + half + i] = table[p * rotary.dim + 2 * i + 1];
    }
  }
  return split;
}

// The tuning for heads of that kind.
const kernels::AttentionTuning& Fitting(const AttentionNodeOptions& options,
                                        const std::string& model, const model::LayerSizes& sizes) {
  CheckHeads(model, sizes.head_size, sizes.group());
  const kernels::AttentionTuning& tuning =
      options.tuning.ForAttention(CeilDiv(sizes.head_size, kBlock), sizes.group());
  if (const std::string why = kernels::WhyNotFit(options.isa, tuning); !why.empty())
    throw Error("attention: {}", why);
  return tuning;
}

// Null without such a norm here: one of whole rows is weight_node's.
const model::TensorSpec* NormOfHeads(const model::LayerSpec& layer, model::TensorRole role) {
  return layer.qk_norm == model::QkNorm::kRow ? nullptr : layer.Find(role);
}

std::vector<NumaNodeId> NodesOfThreads(const AttentionNodeOptions& options) {
  std::set<NumaNodeId> nodes;
  for (size_t t = 0; t < options.threads; ++t) nodes.insert(options.node(t));
  return {nodes.begin(), nodes.end()};
}

}  // namespace

std::unique_ptr<AttentionNode::Kind> AttentionNode::MakeKind(const model::LayerSpec& layer) const {
  const model::LayerSizes& sizes = layer.sizes;
  const size_t blocks = CeilDiv(sizes.head_size, kBlock);
  const size_t value_blocks = CeilDiv(layer.value_size(), kBlock);
  const kernels::AttentionTuning& tuning = Fitting(options_, config_.name, sizes);
  auto kind = std::make_unique<Kind>(Kind{
      .tuning = tuning,
      .scores = kernels::Gemm::Make(options_.isa, ScoresShape(blocks), {.products = tuning.scores}),
      .values = {},
      .shapes = std::vector<AttentionShape>(1),
      .scratch = std::vector<AttentionScratch>(options_.threads)});
  const size_t max_queries = ValuesQueries(kind->tuning, sizes.group());
  AddValueKernels(options_.isa, value_blocks, max_queries, kind->tuning, kind->values);
  AttentionShape& shape = kind->shapes[0];
  shape =
      AttentionShape{.head_size = sizes.head_size,
                     .rotary_dim = layer.rotary.dim,
                     .group = sizes.group(),
                     .kv_heads = sizes.kv_heads,
                     .blocks = blocks,
                     .value_size = layer.value_size(),
                     .value_blocks = value_blocks,
                     .epsilon = layer.norm_epsilon,
                     .query_scale = static_cast<float>(1.0 / layer.attention_divisor),
                     .score_cap = static_cast<float>(layer.score_cap),
                     .rope = nullptr,
                     .temperature = nullptr,
                     .elementwise = &kernels::GetElementwise(options_.isa),
                     .scores = &kind->scores,
                     .chunk_stride = kChunkStride,
                     .max_values_queries = max_queries,
                     .values = kind->values.data(),
                     .tile_queries = TileQueries(kind->tuning, sizes.group()),
                     .bias_pairs = biases_.most_pairs(),
                     .window = layer.window,
                     .gates = layer.output_gate ? &kernels::GetRecurrent(options_.isa) : nullptr,
                     .kv = &kv_};
  shape.norms = layer.norm == model::NormKind::kRms ? shape.elementwise->rms_norms
                                                    : shape.elementwise->layer_norms;
  if (layer.qk_norm == model::QkNorm::kEachHead) shape.q_norm_stride = sizes.head_size;
  return kind;
}

// Each node gets the tables of rotations, those that are equal once, and of temperatures.
void AttentionNode::AddRotations() {
  const std::vector<size_t> own_kinds = config_.OwnKinds();
  const auto same_as = [&](size_t kind) -> const Kind* {
    for (const size_t other : own_kinds) {
      if (other < kind && kinds_[other] != nullptr &&
          config_.kinds[other].rotary == config_.kinds[kind].rotary)
        return kinds_[other].get();
    }
    return nullptr;
  };
  for (const auto& kind : kinds_)
    if (kind != nullptr) kind->shapes.resize(nodes_.size(), kind->shape());
  rotations_ = topology::NodeArenas([&](auto&& take) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      // A table of so many floats: a copy of the first node's, or what make() says.
      const auto place = [&](size_t count, const float* of_first,
                             const auto& make) -> const float* {
        auto* const to = reinterpret_cast<float*>(take(nodes_[n], count * sizeof(float)));
        if (to == nullptr) return nullptr;  // counts
        if (n > 0) {
          std::copy_n(of_first, count, to);
        } else {
          std::ranges::copy(make(), to);
        }
        return to;
      };
      for (const size_t number : own_kinds) {
        if (kinds_[number] == nullptr) continue;
        const model::LayerSpec& spec = config_.kinds[number];
        AttentionShape& shape = kinds_[number]->shapes[n];
        const AttentionShape& first = kinds_[number]->shape();
        if (const Kind* const same = same_as(number)) {
          shape.rope = same->shapes[n].rope;
        } else if (spec.rotary.dim > 0) {
          shape.rope = place(options_.context * spec.rotary.dim, first.rope,
                             [&] { return SplitTable(spec.rotary, options_.context); });
        }
        if (spec.temperature.beta != 0.0) {
          shape.temperature = place(options_.context, first.temperature, [&] {
            std::vector<float> table;
            for (size_t p = 0; p < options_.context; ++p)
              table.push_back(static_cast<float>(spec.temperature.At(p)));
            return table;
          });
        }
      }
    }
  });
}

AttentionNode::AttentionNode(const model::ModelConfig& config, const model::GgufFile& file,
                             const AttentionNodeOptions& options, const AttentionIo& io)
    : config_(config),
      options_(options),
      io_(io),
      nodes_(NodesOfThreads(options)),
      kv_(KvShape(config, options.slots, options.context, options.kv_pools, options.kv_classes),
          KvHomes(config_, options_.threads, options_.node_of_thread)),
      biases_(config, file, options.node()),
      state_layers_(config, file, kv_,
                    {.isa = options.isa,
                     .threads = options.threads,
                     .node_of_thread = options.node_of_thread}) {
  // Weights of norms and sinks.
  const std::vector<size_t> own_kinds = config.OwnKinds();
  size_t bytes = kCacheLineBytes;
  for (const size_t kind : own_kinds) {
    const model::LayerSpec& spec = config.kinds[kind];
    if (spec.value_norm) bytes += RoundUp(spec.sizes.head_size * sizeof(float), kCacheLineBytes);
  }
  const std::pair<std::vector<const float*>*, model::TensorRole> norms[] = {
      {&q_norm_, model::TensorRole::kQNorm}, {&k_norm_, model::TensorRole::kKNorm}};
  for (const auto& [weights, role] : norms) {
    weights->assign(config.layers, nullptr);
    for (size_t layer = 0; layer < config.layers; ++layer) {
      if (const model::TensorSpec* norm = NormOfHeads(config.layer(layer), role))
        bytes += RoundUp(norm->rows * norm->cols * sizeof(float), kCacheLineBytes);
    }
  }
  for (size_t layer = 0; layer < config.layers; ++layer) {
    if (const model::TensorSpec* sinks = config.layer(layer).Find(model::TensorRole::kSinks))
      bytes += RoundUp(sinks->cols * sizeof(float), kCacheLineBytes);
  }
  tables_ = topology::Arena(bytes, options.node());
  kinds_.resize(config.kinds.size());
  for (const size_t kind : own_kinds) {
    const model::LayerSpec& spec = config.kinds[kind];
    if (!spec.attends()) continue;
    kinds_[kind] = MakeKind(spec);
    if (spec.value_norm) {
      const auto ones = tables_.AllocateArray<float>(spec.sizes.head_size);
      std::ranges::fill(ones, 1.0f);
      kinds_[kind]->shapes[0].value_norm = ones.data();
    }
  }
  AddRotations();
  for (const auto& [norm, role] : norms) {
    for (size_t layer = 0; layer < config.layers; ++layer) {
      if (NormOfHeads(config.layer(layer), role) == nullptr) continue;
      const std::vector<float> of_file = model::ReadVector(file, config, layer, role);
      auto weights = tables_.AllocateArray<float>(of_file.size());
      std::ranges::copy(model::InPackedOrder(config.layer(layer), of_file), weights.begin());
      (*norm)[layer] = weights.data();
    }
  }

  sinks_.assign(config.layers, nullptr);
  for (size_t layer = 0; layer < config.layers; ++layer) {
    if (!config.layer(layer).Has(model::TensorRole::kSinks)) continue;
    const std::vector<float> of_file =
        model::ReadVector(file, config, layer, model::TensorRole::kSinks);
    auto sinks = tables_.AllocateArray<float>(of_file.size());
    std::ranges::copy(of_file, sinks.begin());
    sinks_[layer] = sinks.data();
  }

  halves_.resize(options.halves);
  for (Half& half : halves_) {
    half.appended = std::make_unique<sync::EpochFlag[]>(
        config.Most([](const model::LayerSpec& layer) { return layer.sizes.kv_heads; }));
    half.attended = std::make_unique<sync::EpochFlag[]>(options.threads);
    half.parts.assign(options.threads, nullptr);
  }
  const auto part_floats_of = [&](size_t thread) {
    size_t floats = 0;
    for (const auto& kind : kinds_) {
      // Where a thread's work always begins with a head, it never goes on with another thread's
      // row.
      if (kind != nullptr && thread * kind->shape().kv_heads % options.threads != 0)
        floats = std::max(floats, kind->shape().part_floats());
    }
    return floats;
  };
  scratch_arenas_ = topology::NodeArenas([&](auto&& take_on) {
    for (size_t t = 0; t < options.threads; ++t) {
      const auto take = [&](size_t n) { return take_on(options.node(t), n); };
      for (const auto& kind : kinds_)
        if (kind != nullptr) kind->scratch[t] = LayOutScratch(kind->shape(), take);
      for (Half& half : halves_) {
        if (const size_t floats = part_floats_of(t))
          half.parts[t] =
              reinterpret_cast<float*>(take(kv_.shape().chunks * floats * sizeof(float)));
      }
    }
  });
}

void AttentionNode::AddHead(size_t thread, size_t layer, size_t kv_head, size_t half,
                            threadpool::ProgramBuilder& steps,
                            std::span<sync::EpochFlag* const> projected) {
  const Range<size_t> owners = OwnersOf(layer, kv_head);
  const size_t kind_of_layer = config_.KindOf(layer);
  const Kind& kind = *kinds_[kind_of_layer];
  const auto node = std::ranges::find(nodes_, options_.node(thread));
  const AttentionShape& shape = kind.shapes[static_cast<size_t>(node - nodes_.begin())];
  const model::LayerSizes& sizes = config_.layer(layer).sizes;
  const bool first = thread == owners.begin, shared = owners.count() > 1;
  Half& common = halves_[half];
  sync::EpochFlag* const appended = &common.appended[kv_head];
  float* qkv = io_.qkv + kv_head * io_.group_stride.at(kind_of_layer);
  // Whose keys and values these are; if another layer's, they are there.
  const std::optional<size_t>& kv_of = config_.layer(layer).kv_of;
  const size_t kv_layer = kv_of ? *kv_of - config_.first_layer : layer;
  const bool after_rope = config_.layer(layer).qk_norm == model::QkNorm::kHeadAfterRope;
  const bool each_head = config_.layer(layer).qk_norm == model::QkNorm::kEachHead;
  const float* const q_norm =
      each_head ? q_norm_[layer] + kv_head * sizes.group() * sizes.head_size : q_norm_[layer];
  const float* const k_norm =
      each_head ? k_norm_[layer] + kv_head * sizes.head_size : k_norm_[layer];
  Step common_fields;
  common_fields.epoch_offset = static_cast<uint32_t>(layer + 1);
  common_fields.layer = static_cast<uint16_t>(layer);
  steps.SetWaiters(options_.own_waiters);
  const auto add = [&](StepKind step_kind, threadpool::Kernel kernel,
                       const void* operand) -> Step& {
    Step& step = steps.Add(common_fields);
    step.kind = static_cast<uint16_t>(step_kind);
    step.kernel = kernel;
    step.operand = operand;
    return step;
  };
  const auto wait_for = [](Step& step, std::span<sync::EpochFlag* const> flags) {
    step.waits = flags.data();
    step.wait_count = static_cast<uint32_t>(flags.size());
  };

  if (first && !kv_of) {
    Step& append =
        add(StepKind::kAppend, AppendStep,
            &appends_.emplace_back(AppendOperand{.shape = &shape,
                                                 .scratch = kind.scratch[thread],
                                                 .qkv = qkv,
                                                 .qkv_stride = io_.qkv_stride,
                                                 .k_norm = after_rope ? nullptr : k_norm,
                                                 .k_norm_after_rope = after_rope ? k_norm : nullptr,
                                                 .balance = biases_.of(kv_layer, kv_head).of_keys,
                                                 .layer = layer,
                                                 .kv_head = kv_head}));
    wait_for(append, projected);
    if (shared) append.signal = appended;
  }
  const AttentionOperand& operand = attentions_.emplace_back(AttentionOperand{
      .shape = &shape,
      .scratch = kind.scratch[thread],
      .qkv = qkv,
      .qkv_stride = io_.qkv_stride,
      .q_norm = after_rope ? nullptr : q_norm,
      .q_norm_after_rope = after_rope ? q_norm : nullptr,
      .bias = biases_.of(kv_layer, kv_head),
      .sinks = sinks_[layer] == nullptr ? nullptr : sinks_[layer] + kv_head * sizes.group(),
      .layer = layer,
      .kv_head = kv_head,
      .out = io_.out + kv_head * sizes.group() * shape.value_size,
      .out_stride = io_.out_stride,
      .thread = static_cast<uint32_t>(thread),
      .threads = static_cast<uint32_t>(options_.threads),
      .parts = common.parts.data()});
  Step& attend = add(StepKind::kAttention, AttentionStep, &operand);
  if (!first || kv_of) {  // else it has waited and appended itself: program order suffices
    auto& waits = waits_.emplace_back(projected.begin(), projected.end());
    if (!kv_of) waits.push_back(appended);
    wait_for(attend, waits);
  }
  if (!first) attend.signal = &common.attended[thread];
  if (shared) {  // `attend` may have moved from here on
    Step& merge = add(StepKind::kMerge, MergeStep, &operand);
    merge.needed = NeedsMerge;
    auto& waits = waits_.emplace_back();
    for (size_t t = thread + 1; t < owners.end; ++t) waits.push_back(&common.attended[t]);
    wait_for(merge, waits);
  }
}

void AttentionNode::AddState(size_t thread, size_t layer, size_t group,
                             threadpool::ProgramBuilder& steps,
                             std::span<sync::EpochFlag* const> projected) {
  const model::LayerSpec& spec = config_.layer(layer);
  const bool beside = spec.attends();
  const size_t kind = config_.KindOf(layer), kv_heads = spec.sizes.kv_heads;
  const size_t column =
      beside ? kv_heads * io_.group_stride.at(kind) + (group - kv_heads) * io_.state_stride.at(kind)
             : group * io_.group_stride.at(kind);
  const StateOperand* const operand = state_layers_.Operand(
      thread, layer, beside ? group - kv_heads : group, io_.qkv + column, io_.qkv_stride,
      io_.out + (beside ? spec.sizes.q_rows() : 0), io_.out_stride);
  Step step;
  step.epoch_offset = static_cast<uint32_t>(layer + 1);
  step.layer = static_cast<uint16_t>(layer);
  step.kind = static_cast<uint16_t>(StepKind::kState);
  step.kernel = operand != nullptr ? StateStep : nullptr;
  step.operand = operand;
  step.waits = projected.data();
  step.wait_count = static_cast<uint32_t>(projected.size());
  steps.SetWaiters(options_.own_waiters);
  steps.Add(step);
}

void AttentionNode::Map(const model::BatchRows& batch) {
  for (uint32_t i = 0; i < batch.kv_updates; ++i) kv_.Map(batch.kv_update[i]);
}

}  // namespace larder::attention_node
