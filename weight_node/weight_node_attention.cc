// WeightNode: the steps around attention.
#include <numeric>
#include <utility>

#include "weight_node/weight_node.h"

namespace larder::weight_node {

using kernels::kPanelRows;
using model::StepKind;

void WeightNode::AddQkvPart(size_t thread, size_t layer, ProgramForm form, const PanelExtent& part,
                            sync::EpochFlag* ready, Steps& steps) {
  const ActRows& x = InputIn(thread, form);
  ProductOperand operand = OperandOf(part, PanelMatrix::kQkv, layer, x, ProjectedOf(layer));
  operand.bias = shards_[part.home]->QkvBias(layer, part.panels.begin);
  steps.Add(MakeStep(ProductStep, Keep(products_, operand), StepKind::kQkv, layer, false, ready));
}

void WeightNode::AddRowNorm(size_t thread, size_t layer, ProgramForm form,
                            std::span<sync::EpochFlag* const> flags, std::vector<uint32_t> begun,
                            Steps& steps) {
  const model::LayerSpec& spec = config_.layer(layer);
  const LayerShard& shard = shards_[thread]->layers()[layer];
  const bool shared = form == ProgramForm::kManyRows;
  std::vector<uint32_t>& written = groups_.emplace_back(std::move(begun));
  if (shared) {  // all groups of its rows
    written.resize(spec.sizes.kv_heads);
    std::iota(written.begin(), written.end(), 0u);
  }
  steps.Add(MakeStep(nullptr, nullptr, StepKind::kQkv, layer, true));
  const RowNormOperand* operand =
      Keep(row_norms_, RowNormOperand{.elementwise = &elementwise_,
                                      .x = activations_.projected,
                                      .to = activations_.qkv,
                                      .groups = spec.sizes.kv_heads,
                                      .group_stride = LayerShape(spec).group_panels * kPanelRows,
                                      .queries = spec.sizes.group() * spec.sizes.head_size,
                                      .keys = spec.sizes.head_size,
                                      .q_weight = shard.of(model::TensorRole::kQNorm),
                                      .k_weight = shard.of(model::TensorRole::kKNorm),
                                      .epsilon = spec.norm_epsilon,
                                      .scratch = activations_.threads[thread].scratch,
                                      .share = ShareOf(thread, form),
                                      .written = written.data(),
                                      .n_written = written.size()});
  steps.Add(MakeStep(RowNormStep, operand, StepKind::kNorm, layer, shared));
  for (sync::EpochFlag* const flag : flags)
    steps.Add(MakeStep(nullptr, nullptr, StepKind::kQkv, layer, false, flag));
}

void WeightNode::AddLatent(size_t thread, size_t layer, ProgramForm form,
                           std::span<sync::EpochFlag* const> flags, Steps& steps) {
  const model::LayerSpec& spec = config_.layer(layer);
  const LayerShard& shard = shards_[thread]->layers()[layer];
  const bool shared = form == ProgramForm::kManyRows, down = spec.latent.query_rank != 0;
  steps.Add(MakeStep(nullptr, nullptr, StepKind::kQkv, layer, true));
  if (down) {
    const ActRows& latent =
        shared ? activations_.shared_latent : activations_.threads[thread].latent;
    const NormOperand* norm =
        Keep(norms_, NormOperand{.elementwise = &elementwise_,
                                 .norms = elementwise_.rms_norms,
                                 .x = activations_.projected,
                                 .weight = shard.of(model::TensorRole::kQueryDownNorm),
                                 .n = spec.latent.query_rank,
                                 .epsilon = spec.norm_epsilon,
                                 .scratch = activations_.threads[thread].scratch,
                                 .out = latent,
                                 .share = ShareOf(thread, form),
                                 .planes = nullptr});
    steps.Add(MakeStep(NormStep, norm, StepKind::kNorm, layer, shared));
    for (const PanelExtent& extent : Work(form, thread, layer, PanelMatrix::kQueryUp)) {
      const ProductOperand operand =
          OperandOf(extent, PanelMatrix::kQueryUp, layer, latent, activations_.queries);
      steps.Add(MakeStep(ProductStep, Keep(products_, operand), StepKind::kQkv, layer, false));
    }
    steps.back().barrier = true;
  }
  const FloatRows& queries = down ? activations_.queries : activations_.projected;
  const size_t of_query = spec.latent.key_size + spec.rotary.dim;
  const LatentOperand* operand = Keep(
      latents_, LatentOperand{.elementwise = &elementwise_,
                              .x = activations_.projected,
                              .queries = queries,
                              .to = activations_.qkv,
                              .heads = spec.sizes.heads,
                              .query_stride = of_query,
                              .head_stride = spec.sizes.head_size,
                              .first_rotated = spec.latent.key_size,
                              .rotated = spec.rotary.dim,
                              .key = down ? spec.latent.query_rank : spec.sizes.heads * of_query,
                              .rank = spec.latent.rank,
                              .weight = shard.of(model::TensorRole::kLatentNorm),
                              .epsilon = spec.norm_epsilon,
                              .share = ShareOf(thread, ProgramForm::kManyRows)});
  steps.Add(MakeStep(LatentStep, operand, StepKind::kNorm, layer, false));
  FloatRows keys = activations_.qkv;
  keys.data += spec.rotary.dim;
  AddHeadProduct(thread, layer, form, PanelMatrix::kKeyUp, queries, of_query, keys,
                 spec.sizes.head_size, false, steps);
  for (sync::EpochFlag* const flag : flags)
    steps.Add(MakeStep(nullptr, nullptr, StepKind::kQkv, layer, false, flag));
}

void WeightNode::AddHeadProduct(size_t thread, size_t layer, ProgramForm form, PanelMatrix matrix,
                                const FloatRows& x, size_t x_stride, const FloatRows& y,
                                size_t y_stride, bool logit_rows, Steps& steps) {
  const model::LatentSpec& latent = config_.layer(layer).latent;
  const bool of_keys = matrix == PanelMatrix::kKeyUp;
  for (const PanelExtent& extent : Work(form, thread, layer, matrix)) {
    const HeadProductOperand* operand =
        Keep(head_products_,
             HeadProductOperand{
                 .gemm = FindGemm(matrix, layer_panels_[layer].of(matrix, 0)),
                 .elementwise = &elementwise_,
                 .panels = shards_[extent.home]->Panel(matrix, layer, extent.panels.begin),
                 .first_panel = extent.panels.begin,
                 .n_panels = extent.panels.count(),
                 .x = x,
                 .y = y,
                 .x_stride = x_stride,
                 .y_stride = y_stride,
                 .inputs = of_keys ? latent.key_size : latent.rank,
                 .outputs = of_keys ? latent.rank : latent.value_size,
                 .tile = activations_.threads[thread].head_tile,
                 .act = activations_.threads[thread].of_head,
                 .logit_rows = logit_rows});
    steps.Add(
        MakeStep(HeadProductStep, operand, of_keys ? StepKind::kQkv : StepKind::kO, layer, false));
  }
  steps.back().barrier = true;
}

void WeightNode::AddValueUp(size_t thread, size_t layer, ProgramForm form, bool logit_rows,
                            Steps& steps) {
  const model::LatentSpec& latent = config_.layer(layer).latent;
  AddHeadProduct(thread, layer, form, PanelMatrix::kValueUp, activations_.attn, latent.rank,
                 activations_.valued, latent.value_size, logit_rows, steps);
}

const FloatRows& WeightNode::ProjectedOf(size_t layer) const {
  const model::LayerSpec& spec = config_.layer(layer);
  const bool apart = spec.qk_norm == model::QkNorm::kRow || spec.latent.any();
  return apart ? activations_.projected : activations_.qkv;
}

const ActRows& WeightNode::InputIn(size_t thread, ProgramForm form) const {
  return form == ProgramForm::kManyRows ? activations_.shared_dim
                                        : activations_.threads[thread].dim;
}

ActRows WeightNode::AttendedOf(size_t thread, ProgramForm form) const {
  return form == ProgramForm::kManyRows ? activations_.shared_q : activations_.threads[thread].q;
}

void WeightNode::AddQuantizeAttended(size_t thread, size_t layer, ProgramForm form, bool logit_rows,
                                     Steps& steps) {
  const bool shared = form == ProgramForm::kManyRows;
  const model::LayerSpec& spec = config_.layer(layer);
  const float* const weight = shards_[thread]->layers()[layer].of(model::TensorRole::kGroupNorm);
  // What has no norm of groups: all, or attention's columns.
  const model::LayerSizes state = spec.state_sizes();
  const size_t plain = weight == nullptr ? spec.output_size() : spec.output_size() - state.q_rows();
  if (plain != 0) {
    const QuantizeOperand* quantize =
        Keep(quantizes_,
             QuantizeOperand{.elementwise = &elementwise_,
                             .x = spec.latent.any() ? activations_.valued : activations_.attn,
                             .n = plain,
                             .out = AttendedOf(thread, form),
                             .share = ShareOf(thread, form),
                             .logit_rows = logit_rows});
    steps.Add(
        MakeStep(QuantizeStep, quantize, StepKind::kQuantize, layer, shared && weight == nullptr));
  }
  if (weight != nullptr) {
    const GroupNormOperand* norm =
        Keep(group_norms_, GroupNormOperand{.elementwise = &elementwise_,
                                            .x = activations_.attn,
                                            .weight = weight,
                                            .first = spec.output_size() - state.q_rows(),
                                            .groups = state.kv_heads,
                                            .n = state.q_rows(),
                                            .epsilon = spec.norm_epsilon,
                                            .scratch = activations_.threads[thread].scratch,
                                            .out = AttendedOf(thread, form),
                                            .share = ShareOf(thread, form),
                                            .logit_rows = logit_rows});
    steps.Add(MakeStep(GroupNormStep, norm, StepKind::kNorm, layer, shared));
  }
}

}  // namespace larder::weight_node
