#include "attention_node/attention_node.h"

#include <algorithm>
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

// The tuning for the model's heads.
const kernels::AttentionTuning& Fitting(const AttentionNodeOptions& options,
                                        const model::ModelConfig& config) {
  CheckHeads(config.name, config.head_size, config.group());
  const kernels::AttentionTuning& tuning =
      options.tuning.ForAttention(CeilDiv(config.head_size, kBlock), config.group());
  if (const std::string why = kernels::WhyNotFit(options.isa, tuning); !why.empty())
    throw Error("attention: {}", why);
  return tuning;
}

}  // namespace

AttentionNode::AttentionNode(const model::ModelConfig& config, const model::GgufFile& file,
                             const AttentionNodeOptions& options, const AttentionIo& io)
    : config_(config),
      options_(options),
      io_(io),
      kv_(KvShape(config, options.slots, options.context, options.kv_chunks), options.node),
      biases_(config, file, options.node),
      tuning_(Fitting(options, config)),
      scores_(kernels::Gemm::Make(options.isa, ScoresShape(kv_.shape().blocks),
                                  {.products = tuning_.scores})) {
  const size_t blocks = kv_.shape().blocks;
  const size_t tile_queries = TileQueries(tuning_, config.group()),
               max_queries = ValuesQueries(tuning_, config.group());
  const std::vector<float> rope = SplitTable(config.layer.rotary, options.context);
  const std::pair<std::vector<const float*>*, model::TensorRole> norms[] = {
      {&q_norm_, model::TensorRole::kQNorm}, {&k_norm_, model::TensorRole::kKNorm}};
  size_t norm_bytes = 0;
  for (const auto& [weights, role] : norms) {
    weights->assign(config.layers, nullptr);
    if (config.layer.Has(role))
      norm_bytes += config.layers * RoundUp(config.head_size * sizeof(float), kCacheLineBytes);
  }
  tables_ =
      topology::Arena(rope.size() * sizeof(float) + norm_bytes + kCacheLineBytes, options.node);
  auto table = tables_.AllocateArray<float>(rope.size());
  std::copy(rope.begin(), rope.end(), table.begin());
  for (const auto& [norm, role] : norms) {
    for (size_t layer = 0; config.layer.Has(role) && layer < config.layers; ++layer) {
      auto weights = tables_.AllocateArray<float>(config.head_size);
      file.ReadRowsF32(file.Tensor(config.TensorName(layer, role)), 0, 1, weights.data());
      (*norm)[layer] = weights.data();
    }
  }

  AddValueKernels(options.isa, blocks, max_queries, tuning_, values_);
  shape_ = AttentionShape{.head_size = config.head_size,
                          .rotary_dim = config.layer.rotary.dim,
                          .group = config.group(),
                          .kv_heads = config.kv_heads,
                          .blocks = blocks,
                          .epsilon = config.norm_epsilon,
                          .query_scale = static_cast<float>(1.0 / config.layer.attention_divisor),
                          .rope = table.data(),
                          .elementwise = &kernels::GetElementwise(options.isa),
                          .scores = &scores_,
                          .chunk_stride = kChunkStride,
                          .max_values_queries = max_queries,
                          .values = values_.data(),
                          .tile_queries = tile_queries,
                          .bias_pairs = biases_.most_pairs(),
                          .kv = &kv_};

  // The scratch of all threads is in one arena; the first layout pass counts bytes, the second
  // assigns addresses.
  scratch_.resize(options.threads);
  halves_.resize(options.halves);
  for (Half& half : halves_) {
    half.appended = std::make_unique<sync::EpochFlag[]>(config.kv_heads);
    half.attended = std::make_unique<sync::EpochFlag[]>(options.threads);
    half.parts.assign(options.threads, nullptr);
  }
  auto lay_out = [&](auto&& take) {
    for (AttentionScratch& s : scratch_) s = LayOutScratch(shape_, take);
    for (Half& half : halves_) {
      for (size_t t = 0; t < options.threads; ++t) {
        // Where a thread's work always begins with a head, it never goes on with another thread's
        // row.
        if (t * config.kv_heads % options.threads == 0) continue;
        half.parts[t] = reinterpret_cast<float*>(
            take(kv_.shape().chunks * shape_.part_floats() * sizeof(float)));
      }
    }
  };
  size_t bytes = 0;
  lay_out([&](size_t n) -> std::byte* {
    bytes += RoundUp(n, kFalseSharingBytes);
    return nullptr;
  });
  scratch_arena_ = topology::Arena(bytes, options.node);
  lay_out([&](size_t n) {
    return scratch_arena_.Allocate(RoundUp(n, kFalseSharingBytes), kFalseSharingBytes);
  });
}

void AttentionNode::AddHead(size_t thread, size_t layer, size_t kv_head, size_t half,
                            std::vector<Step>& steps, std::span<sync::EpochFlag* const> projected,
                            sync::EpochFlag* done) {
  const Range<size_t> owners = OwnersOf(kv_head);
  const bool first = thread == owners.begin, shared = owners.count() > 1;
  Half& common = halves_[half];
  sync::EpochFlag* const appended = &common.appended[kv_head];
  float* qkv = io_.qkv + kv_head * io_.group_stride;
  Step common_fields;
  common_fields.epoch_offset = static_cast<uint32_t>(layer + 1);
  common_fields.layer = static_cast<uint16_t>(layer);
  common_fields.waiters = options_.own_waiters;
  const auto add = [&](StepKind kind, threadpool::Kernel kernel, const void* operand) -> Step& {
    Step& step = steps.emplace_back(common_fields);
    step.kind = static_cast<uint16_t>(kind);
    step.kernel = kernel;
    step.operand = operand;
    return step;
  };
  const auto wait_for = [](Step& step, std::span<sync::EpochFlag* const> flags) {
    step.waits = flags.data();
    step.wait_count = static_cast<uint32_t>(flags.size());
  };

  if (first) {
    Step& append =
        add(StepKind::kAppend, AppendStep,
            &appends_.emplace_back(AppendOperand{.shape = &shape_,
                                                 .scratch = scratch_[thread],
                                                 .qkv = qkv,
                                                 .qkv_stride = io_.qkv_stride,
                                                 .k_norm = k_norm_[layer],
                                                 .balance = biases_.of(layer, kv_head).of_keys,
                                                 .layer = layer,
                                                 .kv_head = kv_head}));
    wait_for(append, projected);
    if (shared) append.signal = appended;
  }
  const AttentionOperand& operand = attentions_.emplace_back(
      AttentionOperand{.shape = &shape_,
                       .scratch = scratch_[thread],
                       .qkv = qkv,
                       .qkv_stride = io_.qkv_stride,
                       .q_norm = q_norm_[layer],
                       .bias = biases_.of(layer, kv_head),
                       .layer = layer,
                       .kv_head = kv_head,
                       .out = io_.out + kv_head * config_.group() * config_.head_size,
                       .out_stride = io_.out_stride,
                       .thread = static_cast<uint32_t>(thread),
                       .threads = static_cast<uint32_t>(options_.threads),
                       .parts = common.parts.data()});
  Step& attend = add(StepKind::kAttention, AttentionStep, &operand);
  if (!first) {  // the first has waited and appended itself: program order suffices
    auto& waits = waits_.emplace_back(projected.begin(), projected.end());
    waits.push_back(appended);
    wait_for(attend, waits);
    attend.signal = &common.attended[thread];
  }
  if (shared) {  // `attend` may have moved from here on
    Step& merge = add(StepKind::kMerge, MergeStep, &operand);
    merge.needed = NeedsMerge;
    auto& waits = waits_.emplace_back();
    for (size_t t = thread + 1; t < owners.end; ++t) waits.push_back(&common.attended[t]);
    wait_for(merge, waits);
  }
  if (done != nullptr) {
    steps.back().signal = done;
    steps.back().waiters = options_.done_waiters;
  }
}

void AttentionNode::Map(const model::BatchRows& batch) {
  for (uint32_t i = 0; i < batch.kv_updates; ++i) kv_.Map(batch.kv_update[i]);
}

}  // namespace larder::attention_node
