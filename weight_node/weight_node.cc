#include "weight_node/weight_node.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "threadpool/share.h"

namespace larder::weight_node {

using kernels::Gemm;
using kernels::GemmShape;
using kernels::kPanelRows;
using model::StepKind;
using threadpool::Step;

Step WeightNode::MakeStep(threadpool::Kernel kernel, const void* operand, StepKind kind,
                          size_t layer, bool barrier, sync::EpochFlag* signal) {
  Step step;
  step.kernel = kernel;
  step.operand = operand;
  step.epoch_offset = static_cast<uint32_t>(layer + 1);
  step.signal = signal;
  step.barrier = barrier;
  step.kind = static_cast<uint16_t>(kind);
  step.layer = static_cast<uint16_t>(layer);
  return step;
}

WeightNode::WeightNode(const model::ModelConfig& config, const ShardPlan& plan,
                       const WeightNodeOptions& options)
    : config_(config),
      plan_(plan),
      panels_(options.panels ? *options.panels : PanelMap(plan)),
      elementwise_(kernels::GetElementwise(options.isa)),
      activations_(config, options.node_of_thread, options.few_rows, options.max_batch_tokens,
                   options.logit_rows, options.shared_io),
      experts_(config, options.node_of_thread, options.few_rows, options.max_batch_tokens,
               MostDownColumns()),
      counters_(config, options.slots),
      layer_panels_(PanelsOfLayers(config)),
      own_waiters_(options.own_waiters),
      halves_(options.halves),
      expert_shares_(options.expert_shares),
      flags_(options.halves * plan.threads.size() * kPanelMatrices) {
  for (const model::LayerSpec& kind : config.kinds) {
    // The residuals between O and down, and before a layer input's part, are in buffers of their
    // own.
    const auto behind = std::ranges::count_if(
        kind.ops, [](const model::LayerOp& op) { return op.post_norm.has_value(); });
    LARDER_CHECK(behind == 0 || behind == 2 + (kind.input_size != 0), "{} norms behind blocks",
                 behind);
    LARDER_CHECK(kind.experts.count == 0 || (behind != 0) == kind.experts.beside_ffn,
                 "a norm behind experts alone");
  }
  MakePartRows(options);
  MakeProducts(options);
  for (size_t t = 0; t < plan.threads.size(); ++t) {
    shards_.push_back(std::make_unique<Shards>(config_, plan_, t, options.node_of_thread.at(t)));
  }
  if (config.ends && !config.tied_embeddings) {
    embedding_ = topology::Arena(EmbeddingBytes(config), options.node_of_thread[0]);
  }
  if (config.ends && config.input_size != 0)
    input_embedding_ = topology::Arena(InputEmbeddingBytes(config), options.node_of_thread[0]);
}

void WeightNode::MakeProducts(const WeightNodeOptions& options) {
  const uint64_t weight_bytes = plan_.MostThreadBytes(config_);
  // Rows of a buffer have the length of the layer that has the most.
  const auto input_of = [&](PanelMatrix matrix, Target target) -> const ActRows& {
    if (matrix == PanelMatrix::kInputOut) return activations_.ffn;
    if (matrix == PanelMatrix::kDown)
      return target == Target::kExperts ? experts_.z : activations_.ffn;
    if (matrix == PanelMatrix::kQueryUp) return activations_.shared_latent;
    if (matrix == PanelMatrix::kKeyUp || matrix == PanelMatrix::kValueUp)
      return activations_.threads[0].of_head;
    return matrix == PanelMatrix::kO            ? activations_.shared_q
           : matrix == PanelMatrix::kSharedDown ? experts_.shared_z
                                                : activations_.shared_dim;
  };
  const auto make_for = [&](PanelMatrix matrix, const kernels::PanelShape& panel,
                            const FloatRows& y, Target target) {
    if (FindGemm(matrix, panel, target) != nullptr) return;
    const bool residual = matrix == PanelMatrix::kO || matrix == PanelMatrix::kDown;
    products_of_.push_back(
        {matrix, target,
         Gemm::Make(options.isa,
                    GemmShape{.panel = panel,
                              .x_stride_bytes = input_of(matrix, target).stride_bytes,
                              .y_stride_bytes = y.stride_bytes(),
                              .accumulate = residual && target == Target::kRows,
                              .listed = matrix == PanelMatrix::kFfn && target == Target::kExperts,
                              .weight_bytes = weight_bytes},
                    options.tuning)});
  };
  const auto make = [&](PanelMatrix matrix, const kernels::PanelShape& panel, const FloatRows& y) {
    make_for(matrix, panel, y, Target::kRows);
  };
  const auto make_residual = [&](PanelMatrix matrix, size_t layer) {
    const Target target = TargetOf(layer, matrix);
    make_for(matrix, layer_panels_[layer].of(matrix, 0),
             target == Target::kExperts ? experts_.threads[0].y : activations_.x, target);
  };
  for (size_t layer = 0; layer < config_.layers; ++layer) {
    const LayerPanels& panels = layer_panels_[layer];
    const size_t kind = config_.KindOf(layer);
    const LayerShape shape(config_.kinds[kind]);
    const size_t groups = shape.state_groups == 0 ? 1 : config_.kinds[kind].groups();
    for (uint32_t panel = 0; panel < shape.of_group(groups - 1).end; ++panel)
      make(PanelMatrix::kQkv, panels.of(PanelMatrix::kQkv, panel), ProjectedOf(layer));
    const model::LatentSpec& latent = config_.kinds[kind].latent;
    const auto make_for_heads = [&](PanelMatrix matrix, size_t outputs, const FloatRows& y) {
      make(matrix, panels.of(matrix, 0),
           outputs % kPanelRows == 0 ? y : activations_.threads[0].head_tile);
    };
    if (latent.any()) {
      make_for_heads(PanelMatrix::kKeyUp, latent.rank, activations_.qkv);
      make_for_heads(PanelMatrix::kValueUp, latent.value_size, activations_.valued);
    }
    if (latent.query_rank != 0)
      make(PanelMatrix::kQueryUp, panels.of(PanelMatrix::kQueryUp, 0), activations_.queries);
    make_residual(PanelMatrix::kO, layer);
    if (config_.kinds[kind].has_ffn()) {
      make_for(PanelMatrix::kFfn, panels.of(PanelMatrix::kFfn, 0), activations_.threads[0].ffn_tile,
               TargetOf(layer, PanelMatrix::kFfn));
      make_residual(PanelMatrix::kDown, layer);
    }
    if (config_.layer(layer).experts.shared_ffn != 0) {
      make(PanelMatrix::kSharedFfn, panels.of(PanelMatrix::kSharedFfn, 0),
           activations_.threads[0].ffn_tile);
      make_residual(PanelMatrix::kSharedDown, layer);
    }
    if (config_.input_size != 0) {
      make(PanelMatrix::kInputGate, panels.of(PanelMatrix::kInputGate, 0),
           activations_.threads[0].ffn_tile);
      make_residual(PanelMatrix::kInputOut, layer);
    }
    for (size_t t = 0; t < plan_.threads.size(); ++t) {
      const std::vector<PanelPart>& parts = plan_.threads[t].parts[kind];
      for (size_t i = 0; i < parts.size(); ++i) {
        const PanelMatrix matrix = parts[i].matrix;
        const FloatRows& whole =
            matrix == PanelMatrix::kFfn ? activations_.threads[t].ffn_tile : activations_.x;
        make_for(matrix, panels.of(parts[i]), parts[i].first() ? whole : part_rows_[t][kind][i],
                 parts[i].first() ? TargetOf(layer, matrix) : Target::kPart);
      }
    }
  }
  if (config_.ends) make(PanelMatrix::kLmHead, HeadPanel(config_), activations_.logits);
  if (config_.ends && config_.input_size != 0)
    make(PanelMatrix::kInputs, InputsPanel(config_), activations_.inputs);
}

void WeightNode::MakePartRows(const WeightNodeOptions& options) {
  for (const ThreadShard& shard : plan_.threads) {
    auto& of_thread = part_rows_.emplace_back(shard.parts.size());
    for (size_t kind = 0; kind < shard.parts.size(); ++kind)
      of_thread[kind].resize(shard.parts[kind].size());
  }
  part_arenas_ = topology::NodeArenas([&](auto&& take) {
    for (size_t t = 0; t < plan_.threads.size(); ++t) {
      const auto& parts = plan_.threads[t].parts;
      for (size_t kind = 0; kind < parts.size(); ++kind) {
        for (size_t i = 0; i < parts[kind].size(); ++i) {
          if (parts[kind][i].first()) continue;
          FloatRows& rows = part_rows_[t][kind][i];
          rows.stride = OddStride(parts[kind][i].panels * kPanelRows);
          rows.data = reinterpret_cast<float*>(
              take(options.node_of_thread[t], options.max_batch_tokens * rows.stride_bytes()));
        }
      }
    }
  });
}

const Gemm* WeightNode::FindGemm(PanelMatrix matrix, const kernels::PanelShape& panel,
                                 Target target) const {
  for (const Product& product : products_of_) {
    if (product.matrix == matrix && product.target == target && product.gemm.shape().panel == panel)
      return &product.gemm;
  }
  return nullptr;
}

WeightNode::Target WeightNode::TargetOf(size_t layer, PanelMatrix matrix) const {
  const bool of_experts = config_.layer(layer).experts.count != 0;
  if (matrix == PanelMatrix::kSharedDown && IsBesideFfn(layer)) return Target::kBranch;
  if (of_experts && (matrix == PanelMatrix::kFfn || matrix == PanelMatrix::kDown ||
                     matrix == PanelMatrix::kSharedDown))
    return Target::kExperts;
  for (const model::LayerOp& op : config_.layer(layer).ops) {
    const bool is_its = (op.kind == model::OpKind::kO && matrix == PanelMatrix::kO) ||
                        (op.kind == model::OpKind::kDown && matrix == PanelMatrix::kDown) ||
                        (op.kind == model::OpKind::kInputOut && matrix == PanelMatrix::kInputOut);
    if (is_its && op.post_norm) return Target::kBranch;
  }
  return Target::kRows;
}

void WeightNode::Pack(const model::GgufFile& file, size_t thread, PackedByteCounter& progress) {
  shards_[thread]->Pack(file, progress);
  if (!config_.ends) return;
  if (!config_.tied_embeddings)
    PackTable(file, model::kEmbeddingTensor, EmbeddingType(config_), config_.dim, embedding_,
              thread, progress);
  if (config_.input_size != 0)
    PackTable(file, model::kInputEmbeddingTensor, InputEmbeddingType(config_), config_.all_inputs(),
              input_embedding_, thread, progress);
}

void WeightNode::PackTable(const model::GgufFile& file, const char* name, model::TensorType type,
                           size_t cols, const topology::Arena& to, size_t thread,
                           PackedByteCounter& progress) const {
  // A token reads only one row, so the rows' placement matters little.
  const model::TensorInfo& tensor = file.Tensor(name);
  auto* table = reinterpret_cast<uint8_t*>(to.data());
  const size_t row_bytes = model::RowBytes(type, RoundUp(cols, model::kBlock));
  const auto [begin, end] =
      threadpool::ShareOf(static_cast<uint32_t>(config_.vocab), static_cast<uint32_t>(thread),
                          static_cast<uint32_t>(shards_.size()));
  constexpr size_t kBatch = 512;
  for (size_t row = begin; row < end; row += kBatch) {
    const size_t n = std::min<size_t>(kBatch, end - row);
    file.ReadRowsAs(type, tensor, row, n, table + row * row_bytes);
    progress.Add(thread, n * row_bytes);
  }
}

void WeightNode::Finish() {
  for (size_t t = 0; t < shards_.size(); ++t) {
    head_panels_.push_back(shards_[t]->head());
    head_first_panel_.push_back(plan_.threads[t].lm_head().begin);
  }
  head_first_panel_.push_back(static_cast<uint32_t>(plan_.lm_head_panels));
}

uint64_t WeightNode::weight_bytes() const {
  uint64_t bytes = 0;
  for (const auto& shard : shards_) bytes += shard->weight_bytes();
  return bytes;
}

RowShare WeightNode::ShareOf(size_t thread, ProgramForm form) const {
  if (form == ProgramForm::kFewRows) return {0, 1};
  return {static_cast<uint32_t>(thread), static_cast<uint32_t>(shards_.size())};
}

void WeightNode::AddEmbed(size_t thread, Steps& steps) {
  const EmbedOperand* operand =
      Keep(embeds_,
           EmbedOperand{
               .table = config_.tied_embeddings ? nullptr
                                                : reinterpret_cast<const char*>(embedding_.data()),
               .table_type = EmbeddingType(config_),
               .lm_head_panels = head_panels_.data(),
               .head_first_panel = head_first_panel_.data(),
               .head_panel = HeadPanel(config_),
               .dim = config_.dim,
               .x = activations_.x,
               .scratch = activations_.threads[thread].scratch,
               .share = {static_cast<uint32_t>(thread), static_cast<uint32_t>(shards_.size())},
               .scale = static_cast<float>(config_.scales.embedding / config_.scales.residual)});
  steps.Add(MakeStep(EmbedStep, operand, StepKind::kEmbed, 0, true));
}

void WeightNode::AddInputs(size_t thread, ProgramForm form, Steps& steps) {
  if (config_.input_size == 0) return;
  // The norm of a part divided by sqrt(dim) is that of the part with so much more epsilon.
  LARDER_CHECK(config_.scales.residual == 1.0);
  AddInput(thread, 0, form, steps);
  const ActRows& x = InputIn(thread, form);
  for (const PanelExtent& extent : panels_.Work(form, thread, 0, PanelMatrix::kInputs)) {
    FloatRows y = activations_.inputs;
    y.data += extent.panels.begin * kPanelRows;
    const ProductOperand* operand =
        Keep(products_, ProductOperand{.gemm = FindGemm(PanelMatrix::kInputs, InputsPanel(config_)),
                                       .elementwise = &elementwise_,
                                       .panels = shards_[extent.home]->Panel(
                                           PanelMatrix::kInputs, 0, extent.panels.begin),
                                       .n_panels = extent.panels.count(),
                                       .bias = nullptr,
                                       .x = x,
                                       .y = y});
    steps.Add(MakeStep(ProductStep, operand, StepKind::kLayerInput, 0, false));
  }
  steps.back().barrier = true;
  const auto dim = static_cast<double>(config_.dim), size = static_cast<double>(config_.input_size);
  const InputsOperand* operand =
      Keep(inputs_, InputsOperand{.elementwise = &elementwise_,
                                  .table = reinterpret_cast<const char*>(input_embedding_.data()),
                                  .table_type = InputEmbeddingType(config_),
                                  .weight = shards_[thread]->input_norm(),
                                  .epsilon = static_cast<float>(config_.norm_epsilon * dim),
                                  .row_scale = static_cast<float>(std::sqrt(size)),
                                  .scale = static_cast<float>(std::sqrt(0.5)),
                                  .size = config_.input_size,
                                  .layers = config_.kind_of.size(),
                                  .x = activations_.inputs,
                                  .scratch = activations_.threads[thread].scratch,
                                  .share = ShareOf(thread, ProgramForm::kManyRows)});
  steps.Add(MakeStep(InputsStep, operand, StepKind::kLayerInput, 0, true));
}

// Transfers the columns of the residual that the thread's down panels write, and a share of the
// layer inputs, behind which there is a barrier.
void WeightNode::AddTransfer(size_t thread, ProgramForm form, threadpool::Kernel kernel,
                             StepKind kind, size_t layer, bool barrier, bool logit_rows,
                             bool inputs, Steps& steps) {
  const PanelMatrix last = config_.layer(layer).has_ffn() ? PanelMatrix::kDown : PanelMatrix::kO;
  const size_t all = inputs ? config_.all_inputs() : 0;
  const auto add = [&](const FloatRows& x, size_t at, Range<size_t> columns) {
    const TransferOperand* operand =
        Keep(transfers_, TransferOperand{.x = x,
                                         .row_floats = config_.dim + all,
                                         .at = at,
                                         .first = columns.begin,
                                         .count = columns.count(),
                                         .logit_rows = logit_rows});
    steps.Add(MakeStep(kernel, operand, kind, layer, false));
  };
  for (const Range<size_t>& columns : ColumnsOf(thread, layer, form, last))
    add(activations_.x, 0, columns);
  if (all != 0) {
    const auto own = threadpool::ShareOf(static_cast<uint32_t>(all), static_cast<uint32_t>(thread),
                                         static_cast<uint32_t>(shards_.size()));
    add(activations_.inputs, config_.dim, {own.begin, own.end});
  }
  steps.back().barrier = barrier;
}

void WeightNode::AddReceive(size_t thread, bool inputs, Steps& steps) {
  // A barrier follows, so any division of the columns works.
  AddTransfer(thread, ProgramForm::kFewRows, ReceiveStep, StepKind::kReceive, 0, true, false,
              inputs, steps);
}

void WeightNode::AddSend(size_t thread, ProgramForm form, bool logit_rows, Steps& steps) {
  AddTransfer(thread, form, SendStep, StepKind::kSend, std::max<size_t>(1, config_.layers) - 1,
              false, logit_rows, !logit_rows, steps);
}

void WeightNode::AddNorm(size_t thread, size_t layer, ProgramForm form, const float* weight,
                         StepKind kind, const HeadPlanes* planes, const RouterOperand* router,
                         Steps& steps) {
  const bool shared = form == ProgramForm::kManyRows;
  const bool beside = router != nullptr && IsBesideFfn(layer);
  const ExpertNorms* experts = nullptr;
  if (beside) {
    const LayerShard& shard = shards_[thread]->layers()[layer];
    experts =
        Keep(expert_norms_, ExpertNorms{.weight = shard.of(model::TensorRole::kExpertNorm),
                                        .out = shared ? activations_.shared_expert_dim
                                                      : activations_.threads[thread].expert_dim,
                                        .router_weight = shard.of(model::TensorRole::kRouterScale),
                                        .router = router});
  }
  const NormOperand* operand = Keep(
      norms_,
      NormOperand{.elementwise = &elementwise_,
                  .norms = NormsOf(planes != nullptr ? config_.norm : config_.layer(layer).norm),
                  .x = beside && !shared ? activations_.between[0] : activations_.x,
                  .weight = weight,
                  .n = config_.dim,
                  .epsilon = Epsilon(planes != nullptr ? config_.norm_epsilon
                                                       : config_.layer(layer).norm_epsilon),
                  .scratch = activations_.threads[thread].scratch,
                  .out = InputIn(thread, form),
                  .share = ShareOf(thread, form),
                  .planes = planes,
                  .router = beside ? nullptr : router,
                  .experts = experts});
  steps.Add(MakeStep(NormStep, operand, kind, layer, shared || router != nullptr));
}

ProductOperand WeightNode::OperandOf(const PanelExtent& extent, PanelMatrix matrix, size_t layer,
                                     const ActRows& x, FloatRows y) const {
  y.data += extent.panels.begin * kPanelRows;
  const kernels::PanelShape panel = layer_panels_[layer].of(matrix, extent.panels.begin);
  return {.gemm = FindGemm(matrix, panel, TargetOf(layer, matrix)),
          .elementwise = &elementwise_,
          .panels = shards_[extent.home]->Panel(matrix, layer, extent.panels.begin),
          .n_panels = extent.panels.count(),
          .bias = nullptr,
          .x = x,
          .y = y};
}

void WeightNode::AddKeep(size_t thread, size_t layer, ProgramForm form, Steps& steps) {
  // Of the sums that end the layer before, other threads may have these columns.
  if (IsDoneWithSum(layer, form, config_.layer(layer).ops.front()))
    steps.Add(MakeStep(nullptr, nullptr, StepKind::kQuantize, layer, true));
  const auto keep = [&](void* rows, size_t stride_bytes, size_t bytes, Range<size_t> elements) {
    const KeepOperand* operand = Keep(keeps_, KeepOperand{.rows = static_cast<std::byte*>(rows),
                                                          .stride_bytes = stride_bytes,
                                                          .first = elements.begin * bytes,
                                                          .count = elements.count() * bytes});
    steps.Add(MakeStep(KeepStep, operand, StepKind::kQuantize, layer, false));
  };
  // The columns of the residual that the thread's O panels write: no other thread reads or writes
  // them before.
  for (const Range<size_t>& columns : ColumnsOf(thread, layer, form, PanelMatrix::kO)) {
    keep(activations_.x.data, activations_.x.stride_bytes(), sizeof(float), columns);
  }
  // The FFN's activations, if there are some already.
  if (std::ranges::count(config_.layer(layer).BeforeAttention(), model::OpKind::kGate,
                         &model::LayerOp::kind) != 0) {
    for (const PanelRange units : WrittenBy(thread, layer, form, PanelMatrix::kFfn))
      keep(activations_.ffn.data, activations_.ffn.stride_bytes, sizeof(kernels::ActBlock),
           {units.begin, units.end});
  }
  // What the thread's units of the gates of layer inputs read from here on.
  for (size_t later = layer; later < config_.layers; ++later) {
    for (const PanelExtent& extent : Work(form, thread, later, PanelMatrix::kInputGate)) {
      if (extent.panels.count() == 0) continue;
      const FloatRows inputs = InputsOf(later);
      keep(inputs.data, inputs.stride_bytes(), sizeof(float),
           {extent.panels.begin * kernels::kBlock,
            std::min<size_t>(config_.input_size, extent.panels.end * kernels::kBlock)});
    }
  }
  if (config_.layer(layer).latent.any()) {
    AddValueUp(thread, layer, form, true, steps);
  } else {
    AddQuantizeAttended(thread, layer, form, true, steps);
  }
}

void WeightNode::AddAfterAttention(size_t thread, size_t layer, ProgramForm form, size_t half,
                                   bool kept, Steps& steps) {
  for (const model::LayerOp& op : config_.layer(layer).AfterAttention()) {
    const bool is_o = op.kind == model::OpKind::kO, latent = config_.layer(layer).latent.any();
    if (is_o && latent && !kept) AddValueUp(thread, layer, form, false, steps);
    if (is_o && (latent || !kept)) AddQuantizeAttended(thread, layer, form, false, steps);
    AddOp(thread, layer, form, half, op, false, steps);
  }
}

std::vector<Range<size_t>> WeightNode::ColumnsOf(size_t thread, size_t layer, ProgramForm form,
                                                 PanelMatrix matrix) const {
  std::vector<Range<size_t>> columns;
  for (const PanelRange panels : WrittenBy(thread, layer, form, matrix))
    columns.push_back({std::min<size_t>(config_.dim, panels.begin * kPanelRows),
                       std::min<size_t>(config_.dim, panels.end * kPanelRows)});
  return columns;
}

std::vector<PanelRange> WeightNode::WrittenBy(size_t thread, size_t layer, ProgramForm form,
                                              PanelMatrix matrix) const {
  std::vector<PanelRange> written;
  for (const PanelExtent& extent : Work(form, thread, layer, matrix))
    written.push_back(extent.panels);
  if (const PanelPart* part = FirstPart(thread, layer, matrix))
    written.push_back({part->panel, part->panel + 1});
  return written;
}

kernels::GateFn WeightNode::GateOf(size_t layer) const {
  switch (config_.layer(layer).gate) {
    case model::GateKind::kSilu:
      return elementwise_.of(kernels::Gate::kSilu);
    case model::GateKind::kGeluTanh:
      return elementwise_.of(kernels::Gate::kGeluTanh);
    case model::GateKind::kClamped:
      return elementwise_.of(kernels::Gate::kClamped);
    case model::GateKind::kSquaredRelu:
      return elementwise_.of(kernels::Gate::kRelu);
  }
  return nullptr;
}

void WeightNode::AddOp(size_t thread, size_t layer, ProgramForm form, size_t half,
                       const model::LayerOp& op, bool logit_rows, Steps& steps) {
  const LayerShard& shard = shards_[thread]->layers()[layer];
  switch (op.kind) {
    case model::OpKind::kNorm:
      if (IsDoneWithSum(layer, form, op)) return;
      return AddNorm(thread, layer, form, shard.of(op.norm), StepKind::kNorm, nullptr,
                     IsRouted(layer, op) ? RouterOf(thread, layer, form) : nullptr, steps);
    case model::OpKind::kInput:
      if (IsDoneWithSum(layer, form, op)) return;
      return AddInput(thread, layer, form, steps);
    case model::OpKind::kDown:
      if (config_.layer(layer).experts.count != 0) {
        AddExpertsDown(thread, layer, form, steps);
        if (!op.post_norm) return;
        AddBesideFfn(thread, layer, form, steps);
        return AddSum(thread, layer, form, op, steps);
      }
      return AddResidual(thread, layer, form, half, op, steps);
    case model::OpKind::kO:
    case model::OpKind::kInputOut:
      return AddResidual(thread, layer, form, half, op, steps);
    case model::OpKind::kInputGate:
      return AddInputGate(thread, layer, form, steps);
    case model::OpKind::kGate:
      if (config_.layer(layer).experts.count != 0) return AddExperts(thread, layer, form, steps);
      return AddGate(thread, layer, form, half, logit_rows, steps);
    case model::OpKind::kQkv:        // needs the caller's flags: AddBeforeAttention
    case model::OpKind::kAttention:  // these are attention_node's
    case model::OpKind::kDeltaRule:
    case model::OpKind::kConvolution:
    case model::OpKind::kMamba2:
      break;
  }
  LARDER_CHECK(false, "operation {} has no step here", static_cast<int>(op.kind));
}

void WeightNode::AddInput(size_t thread, size_t layer, ProgramForm form, Steps& steps) {
  const bool shared = form == ProgramForm::kManyRows;
  const QuantizeOperand* quantize = Keep(quantizes_, QuantizeOperand{.elementwise = &elementwise_,
                                                                     .x = activations_.x,
                                                                     .n = config_.dim,
                                                                     .out = InputIn(thread, form),
                                                                     .share = ShareOf(thread, form),
                                                                     .logit_rows = false});
  steps.Add(MakeStep(QuantizeStep, quantize, StepKind::kQuantize, layer, shared));
}

void WeightNode::AddResidual(size_t thread, size_t layer, ProgramForm form, size_t half,
                             const model::LayerOp& op, Steps& steps) {
  const bool is_o = op.kind == model::OpKind::kO, is_input = op.kind == model::OpKind::kInputOut;
  const PanelMatrix matrix = is_o       ? PanelMatrix::kO
                             : is_input ? PanelMatrix::kInputOut
                                        : PanelMatrix::kDown;
  const StepKind kind = is_o ? StepKind::kO : is_input ? StepKind::kLayerInput : StepKind::kDown;
  const ActRows in = is_o ? AttendedOf(thread, form) : activations_.ffn;
  const LayerShard& shard = shards_[thread]->layers()[layer];
  const float* const bias =
      is_input ? nullptr
               : shard.of(is_o ? model::TensorRole::kOBias : model::TensorRole::kDownBias);
  const auto bias_at = [&](size_t panel) {
    return bias == nullptr ? nullptr : bias + panel * kPanelRows;
  };
  const FloatRows& out = !op.post_norm ? activations_.x
                         : is_o        ? activations_.attention_branch
                                       : activations_.ffn_branch;
  AddOtherParts(thread, layer, half, matrix, in, kind, steps);
  for (const PanelExtent& extent : Work(form, thread, layer, matrix)) {
    ProductOperand operand = OperandOf(extent, matrix, layer, in, out);
    operand.bias = bias_at(extent.panels.begin);
    steps.Add(MakeStep(ProductStep, Keep(products_, operand), kind, layer, false));
  }
  if (const PanelPart* part = FirstPart(thread, layer, matrix)) {
    FloatRows y = out;
    y.data += part->panel * kPanelRows;
    AddFirstPart(thread, layer, half, *part, in, y, bias_at(part->panel), kind, steps);
  }
  steps.back().barrier = true;
  if (op.post_norm) AddSum(thread, layer, form, op, steps);
}

void WeightNode::AddSum(size_t thread, size_t layer, ProgramForm form, const model::LayerOp& op,
                        Steps& steps) {
  const bool is_o = op.kind == model::OpKind::kO, few = form == ProgramForm::kFewRows;
  const model::LayerSpec& spec = config_.layer(layer);
  // A later block's output may take the place of an earlier one's, which all threads have read.
  const FloatRows& y = is_o ? activations_.attention_branch : activations_.ffn_branch;
  const bool ends = &op == &spec.ops.back();
  const size_t sums = op.kind == model::OpKind::kInputOut ? 2 : is_o ? 0 : 1;  // before this one
  const FloatRows& from = few && sums != 0 ? activations_.between[sums - 1] : activations_.x;
  const FloatRows& to = few && !ends ? activations_.between[sums] : activations_.x;
  const LayerShard& shard = shards_[thread]->layers()[layer];
  const float* const weight = shard.of(*op.post_norm);
  const float* const scale = op.output_scale ? shard.of(*op.output_scale) : nullptr;
  const bool last = ends && layer + 1 == config_.layers;
  // Experts beside an FFN, which have several norms of the sum.
  const bool routed = is_o && IsBesideFfn(layer);
  if (!few || last || routed) {
    const AddNormOperand* operand =
        Keep(add_norms_, AddNormOperand{.elementwise = &elementwise_,
                                        .norms = NormsOf(spec.norm),
                                        .x = from,
                                        .y = y,
                                        .to = to,
                                        .weight = weight,
                                        .scale = scale,
                                        .n = config_.dim,
                                        .epsilon = spec.norm_epsilon,
                                        .share = ShareOf(thread, ProgramForm::kManyRows)});
    // Where threads share the rows of what follows, each goes on with its own.
    steps.Add(MakeStep(AddNormStep, operand, StepKind::kNorm, layer, last || (few && routed)));
    return;
  }
  const size_t next_layer = ends ? layer + 1 : layer;
  const model::LayerOp& next = ends ? config_.layer(next_layer).ops.front()
                                    : spec.ops[static_cast<size_t>(&op - spec.ops.data()) + 1];
  const bool normed = next.kind == model::OpKind::kNorm;
  const size_t lines = CeilDiv(config_.dim, kPanelRows);
  const auto own = threadpool::ShareOf(static_cast<uint32_t>(lines), static_cast<uint32_t>(thread),
                                       static_cast<uint32_t>(shards_.size()));
  const size_t first = std::min<size_t>(config_.dim, own.begin * kPanelRows);
  const AddNormInputOperand* operand = Keep(
      add_norm_inputs_,
      AddNormInputOperand{
          .elementwise = &elementwise_,
          .norms = NormsOf(spec.norm),
          .x = from,
          .y = y,
          .to = to,
          .weight = weight,
          .scale = scale,
          .epsilon = spec.norm_epsilon,
          .n = config_.dim,
          .first = first,
          .count = std::min<size_t>(config_.dim, own.end * kPanelRows) - first,
          .next_weight = normed ? shards_[thread]->layers()[next_layer].of(next.norm) : nullptr,
          .next_norms = NormsOf(config_.layer(next_layer).norm),
          .next_epsilon = Epsilon(config_.layer(next_layer).norm_epsilon),
          .scratch = activations_.threads[thread].scratch,
          .out = activations_.threads[thread].dim});
  steps.Add(MakeStep(AddNormInputStep, operand, StepKind::kNorm, layer, false));
}

bool WeightNode::IsDoneWithSum(size_t layer, ProgramForm form, const model::LayerOp& op) const {
  if (form != ProgramForm::kFewRows || IsRouted(layer, op)) return false;
  const std::vector<model::LayerOp>& ops = config_.layer(layer).ops;
  if (&op != ops.data()) return (&op)[-1].post_norm.has_value();
  return layer > 0 && config_.layer(layer - 1).ops.back().post_norm.has_value();
}

const PanelPart* WeightNode::FirstPart(size_t thread, size_t layer, PanelMatrix matrix) const {
  for (const PanelPart& part : PartsOf(thread, layer))
    if (part.matrix == matrix && part.first()) return &part;
  return nullptr;
}

void WeightNode::AddOtherParts(size_t thread, size_t layer, size_t half, PanelMatrix matrix,
                               const ActRows& in, StepKind kind, Steps& steps) {
  const std::vector<PanelPart>& parts = PartsOf(thread, layer);
  bool any = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].matrix != matrix || parts[i].first()) continue;
    any = true;
    AddPart(thread, layer, i, in, part_rows_[thread][config_.KindOf(layer)][i], kind, steps);
  }
  if (!any) return;
  steps.back().signal = PartsFlag(half, thread, matrix);
  steps.back().waiters = own_waiters_;
}

void WeightNode::AddFirstPart(size_t thread, size_t layer, size_t half, const PanelPart& first,
                              const ActRows& in, const FloatRows& y, const float* bias,
                              StepKind kind, Steps& steps) {
  AddPart(thread, layer, static_cast<size_t>(&first - PartsOf(thread, layer).data()), in, y, kind,
          steps);
  // Threads are in the order of their shares, so the parts are in that of their chunks.
  std::vector<sync::EpochFlag*>& flags = waits_.emplace_back();
  std::vector<FloatRows>& rows = added_.emplace_back();
  for (size_t t = 0; t < plan_.threads.size(); ++t) {
    const std::vector<PanelPart>& parts = PartsOf(t, layer);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].matrix != first.matrix || parts[i].panel != first.panel || parts[i].first())
        continue;
      rows.push_back(part_rows_[t][config_.KindOf(layer)][i]);
      sync::EpochFlag* const flag = PartsFlag(half, t, first.matrix);
      if (flags.empty() || flags.back() != flag) flags.push_back(flag);
    }
  }
  if (bias != nullptr)  // the same for all rows
    rows.push_back({.data = const_cast<float*>(bias), .stride = 0});
  const AddPartsOperand* operand = Keep(add_parts_, AddPartsOperand{.elementwise = &elementwise_,
                                                                    .y = y,
                                                                    .n = first.panels * kPanelRows,
                                                                    .parts = rows.data(),
                                                                    .n_parts = rows.size()});
  Step step = MakeStep(AddPartsStep, operand, kind, layer, false);
  step.waits = flags.data();
  step.wait_count = static_cast<uint32_t>(flags.size());
  steps.Add(step);
}

void WeightNode::AddPart(size_t thread, size_t layer, size_t index, ActRows x, const FloatRows& y,
                         StepKind kind, Steps& steps) {
  const PanelPart& part = PartsOf(thread, layer)[index];
  x.data += part.chunks.begin * kernels::kSumBlocks * sizeof(kernels::ActBlock);
  const ProductOperand* operand = Keep(
      products_,
      ProductOperand{.gemm = FindGemm(part.matrix, layer_panels_[layer].of(part),
                                      part.first() ? TargetOf(layer, part.matrix) : Target::kPart),
                     .elementwise = &elementwise_,
                     .panels = shards_[thread]->layers()[layer].parts[index],
                     .n_panels = part.panels,
                     .bias = nullptr,
                     .x = x,
                     .y = y});
  steps.Add(MakeStep(ProductStep, operand, kind, layer, false));
}

void WeightNode::AddGate(size_t thread, size_t layer, ProgramForm form, size_t half,
                         bool logit_rows, Steps& steps) {
  const ActRows& x = InputIn(thread, form);
  const FloatRows& tile = activations_.threads[thread].ffn_tile;
  const auto out_of = [&](uint32_t unit) {
    ActRows out = activations_.ffn;
    out.data += unit * sizeof(kernels::ActBlock);
    return out;
  };
  const float* const biases = shards_[thread]->layers()[layer].gate_up_bias;
  const uint32_t unit_panels = LayerShape(config_.layer(layer)).unit_panels;
  const auto biases_at = [&](size_t unit) {
    return biases == nullptr ? nullptr : biases + unit * unit_panels * kPanelRows;
  };
  AddOtherParts(thread, layer, half, PanelMatrix::kFfn, x, StepKind::kGateUp, steps);
  for (const PanelExtent& extent : Work(form, thread, layer, PanelMatrix::kFfn)) {
    const FfnOperand* ffn = Keep(
        ffns_,
        FfnOperand{
            .gemm = FindGemm(PanelMatrix::kFfn, layer_panels_[layer].of(PanelMatrix::kFfn, 0)),
            .elementwise = &elementwise_,
            .gate = GateOf(layer),
            .units = shards_[extent.home]->Panel(PanelMatrix::kFfn, layer, extent.panels.begin),
            .unit_panels = unit_panels,
            .n_units = extent.panels.count(),
            .biases = biases_at(extent.panels.begin),
            .x = x,
            .tile = tile,
            .out = out_of(extent.panels.begin),
            .logit_rows = logit_rows});
    steps.Add(MakeStep(FfnStep, ffn, StepKind::kGateUp, layer, false));
  }
  if (const PanelPart* part = FirstPart(thread, layer, PanelMatrix::kFfn)) {
    AddFirstPart(thread, layer, half, *part, x, tile, biases_at(part->panel), StepKind::kGateUp,
                 steps);
    const GateOperand* gate = Keep(gates_, GateOperand{.gate = GateOf(layer),
                                                       .unit_panels = unit_panels,
                                                       .tile = tile,
                                                       .out = out_of(part->panel)});
    steps.Add(MakeStep(GateStep, gate, StepKind::kActivation, layer, false));
  }
  steps.back().barrier = true;
}

void WeightNode::AddInputGate(size_t thread, size_t layer, ProgramForm form, Steps& steps) {
  const PanelMatrix matrix = PanelMatrix::kInputGate;
  for (const PanelExtent& extent : Work(form, thread, layer, matrix)) {
    const InputGateOperand* operand = Keep(
        input_gates_,
        InputGateOperand{.gemm = FindGemm(matrix, layer_panels_[layer].of(matrix, 0)),
                         .gate = GateOf(layer),
                         .units = shards_[extent.home]->Panel(matrix, layer, extent.panels.begin),
                         .blocks = {extent.panels.begin, extent.panels.end},
                         .size = config_.input_size,
                         .x = InputIn(thread, form),
                         .inputs = InputsOf(layer),
                         .tile = activations_.threads[thread].ffn_tile,
                         .out = activations_.ffn});
    steps.Add(MakeStep(InputGateStep, operand, StepKind::kLayerInput, layer, false));
  }
  steps.back().barrier = true;
}

void WeightNode::AddLmHead(size_t thread, ProgramForm form, Steps& steps) {
  const size_t layer = std::max<size_t>(1, config_.layers) - 1;
  const HeadPlanes& x =
      form == ProgramForm::kManyRows ? activations_.shared_head : activations_.threads[thread].head;
  AddNorm(thread, layer, form, shards_[thread]->head_norm(), StepKind::kLmHeadNorm, &x, nullptr,
          steps);
  std::vector<const HeadOperand*> operands;
  for (const PanelExtent& extent : panels_.Work(form, thread, 0, PanelMatrix::kLmHead)) {
    operands.push_back(
        Keep(heads_, HeadOperand{.gemm = FindGemm(PanelMatrix::kLmHead, HeadPanel(config_)),
                                 .elementwise = &elementwise_,
                                 .panels = shards_[extent.home]->Panel(PanelMatrix::kLmHead, 0,
                                                                       extent.panels.begin),
                                 .first_panel = extent.panels.begin,
                                 .n_panels = extent.panels.count(),
                                 .vocab = config_.vocab,
                                 .x = x,
                                 .logits = activations_.logits,
                                 .largest = activations_.largest,
                                 .cap = static_cast<float>(config_.scales.logit_cap)}));
    steps.Add(MakeStep(HeadStep, operands.back(), StepKind::kLmHead, layer, false));
  }
  // A thread without panels meets the others, too.
  steps.back().barrier = true;
  for (const HeadOperand* operand : operands)
    steps.Add(MakeStep(RefineStep, operand, StepKind::kLmHead, layer, false));
}

}  // namespace larder::weight_node
