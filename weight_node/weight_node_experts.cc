// WeightNode: the steps of experts.
#include <algorithm>

#include "weight_node/weight_node.h"

namespace larder::weight_node {

using kernels::kPanelRows;
using model::StepKind;

bool WeightNode::IsRouted(size_t layer, const model::LayerOp& op) const {
  const model::LayerSpec& spec = config_.layer(layer);
  if (spec.experts.count == 0 || op.kind != model::OpKind::kNorm) return false;
  const auto next = static_cast<size_t>(&op - spec.ops.data()) + 1;
  return next < spec.ops.size() && spec.ops[next].kind == model::OpKind::kGate;
}

RouterRule WeightNode::RuleOf(size_t thread, size_t layer) const {
  const model::LayerSpec& spec = config_.layer(layer);
  return {.experts = spec.experts.count,
          .used = spec.experts.used,
          .gating = spec.experts.gating,
          .normalise = spec.experts.normalise,
          .scale = static_cast<float>(spec.experts.scale),
          .bias = shards_[thread]->layers()[layer].of(model::TensorRole::kRouterBias),
          .scales = shards_[thread]->layers()[layer].of(model::TensorRole::kExpertScale),
          .groups = spec.experts.groups,
          .groups_used = spec.experts.groups_used,
          .shared_gate = spec.Has(model::TensorRole::kSharedRouter)};
}

const ChosenRows& WeightNode::ChosenIn(size_t thread, ProgramForm form) const {
  return form == ProgramForm::kManyRows ? experts_.chosen : experts_.threads[thread].chosen;
}

const RouterOperand* WeightNode::RouterOf(size_t thread, size_t layer, ProgramForm form) {
  const bool shared = form == ProgramForm::kManyRows;
  std::vector<RouterOperand::Rows>& rows = router_rows_.emplace_back();
  for (size_t t = 0; t < shards_.size(); ++t) {
    if (!shared && t != thread) continue;
    const auto [begin, end] = RouterShare(config_.layer(layer), t, shards_.size());
    const LayerShard& of = shards_[t]->layers()[layer];
    rows.push_back({of.router, of.router_bias, begin, end - begin});
  }
  const ExpertBuffers::OfThread& own = experts_.threads[thread];
  return Keep(routers_, RouterOperand{.elementwise = &elementwise_,
                                      .rule = RuleOf(thread, layer),
                                      .rows = rows.data(),
                                      .n_rows = rows.size(),
                                      .logits = experts_.logits,
                                      .chooses = shared,
                                      .chosen = ChosenIn(thread, form),
                                      .scratch = own.scratch,
                                      .by = own.by});
}

const std::vector<ExpertUnit>& WeightNode::UnitsOf(size_t layer,
                                                   const std::vector<PanelExtent>& extents) {
  std::vector<ExpertUnit>& units =
      expert_units_[{layer, extents.front().panels.begin, extents.back().panels.end}];
  if (!units.empty()) return units;
  for (const PanelExtent& extent : extents) {
    const Shards& home = *shards_[extent.home];
    for (uint32_t unit = extent.panels.begin; unit < extent.panels.end; ++unit)
      units.push_back({.panels = home.Panel(PanelMatrix::kFfn, layer, unit),
                       .biases = home.ExpertUnitBias(layer, unit)});
  }
  return units;
}

void WeightNode::AddExperts(size_t thread, size_t layer, ProgramForm form, Steps& steps) {
  const ExpertBuffers::OfThread& own = experts_.threads[thread];
  const RouteOperand* route =
      Keep(routes_, RouteOperand{.elementwise = &elementwise_,
                                 .rule = RuleOf(thread, layer),
                                 .logits = experts_.logits,
                                 .chooses = form == ProgramForm::kFewRows,
                                 .chosen = ChosenIn(thread, form),
                                 .scratch = own.scratch,
                                 .by = own.by,
                                 .table = own.table,
                                 .counters = thread == 0 ? &counters_.of(layer) : nullptr});
  steps.Add(MakeStep(RouteStep, route, StepKind::kRoute, layer, false));
  const ActRows& x = InputIn(thread, form);
  const ActRows& of_experts = !IsBesideFfn(layer) ? x
                              : form == ProgramForm::kManyRows
                                  ? activations_.shared_expert_dim
                                  : activations_.threads[thread].expert_dim;
  const auto add_ffn = [&](const std::vector<PanelExtent>& extents, RowShare share) {
    const ExpertFfnOperand* ffn =
        Keep(expert_ffns_,
             ExpertFfnOperand{
                 .gemm = FindGemm(PanelMatrix::kFfn, layer_panels_[layer].of(PanelMatrix::kFfn, 0),
                                  Target::kExperts),
                 .elementwise = &elementwise_,
                 .gate = GateOf(layer),
                 .units = UnitsOf(layer, extents).data(),
                 .unit_panels = LayerShape(config_.layer(layer)).unit_panels,
                 .first = extents.front().panels.begin,
                 .end = extents.back().panels.end,
                 .share = share,
                 .experts = config_.layer(layer).experts.count,
                 .table = &own.table,
                 .x = of_experts,
                 .tile = activations_.threads[thread].ffn_tile,
                 .out = experts_.z});
    steps.Add(MakeStep(ExpertFfnStep, ffn, StepKind::kGateUp, layer, false));
  };
  if (expert_shares_) {
    std::vector<PanelExtent> all;
    for (size_t t = 0; t < shards_.size(); ++t) {
      const PanelRange& units = plan_.threads[t].of(config_.KindOf(layer), PanelMatrix::kFfn);
      if (units.count() > 0) all.push_back({.home = t, .panels = units});
    }
    add_ffn(all, {static_cast<uint32_t>(thread), static_cast<uint32_t>(shards_.size())});
  } else {
    for (const PanelExtent& extent : Work(form, thread, layer, PanelMatrix::kFfn))
      add_ffn({extent}, {0, 1});
  }
  if (config_.layer(layer).experts.shared_ffn != 0) {
    for (const PanelExtent& extent : Work(form, thread, layer, PanelMatrix::kSharedFfn)) {
      ActRows out = experts_.shared_z;
      out.data += extent.panels.begin * sizeof(kernels::ActBlock);
      const PanelMatrix matrix = PanelMatrix::kSharedFfn;
      const FfnOperand* ffn =
          Keep(ffns_,
               FfnOperand{.gemm = FindGemm(matrix, layer_panels_[layer].of(matrix, 0)),
                          .elementwise = &elementwise_,
                          .gate = GateOf(layer),
                          .units = shards_[extent.home]->Panel(matrix, layer, extent.panels.begin),
                          .unit_panels = LayerShape(config_.layer(layer)).unit_panels,
                          .n_units = extent.panels.count(),
                          .biases = nullptr,
                          .x = x,
                          .tile = activations_.threads[thread].ffn_tile,
                          .out = out});
      steps.Add(MakeStep(FfnStep, ffn, StepKind::kGateUp, layer, false));
    }
  }
  steps.back().barrier = true;
}

void WeightNode::AddExpertsDown(size_t thread, size_t layer, ProgramForm form, Steps& steps) {
  const ExpertBuffers::OfThread& own = experts_.threads[thread];
  const model::ExpertSpec& spec = config_.layer(layer).experts;
  const auto gemm = [&](PanelMatrix matrix) {
    return FindGemm(matrix, layer_panels_[layer].of(matrix, 0), Target::kExperts);
  };
  for (const PanelExtent& extent : Work(form, thread, layer, PanelMatrix::kDown)) {
    const Shards& home = *shards_[extent.home];
    const bool beside = IsBesideFfn(layer);
    FloatRows x = beside ? activations_.expert_branch : activations_.x;
    x.data += extent.panels.begin * kPanelRows;
    ExpertDownOperand down{.gemm = gemm(PanelMatrix::kDown),
                           .elementwise = &elementwise_,
                           .panels = home.ExpertDown(layer, extent.panels.begin),
                           .expert_bytes = home.ExpertDownStride(layer),
                           .biases = home.ExpertDownBias(layer, extent.panels.begin),
                           .bias_stride = home.ExpertDownBiasStride(layer),
                           .n_panels = extent.panels.count(),
                           .experts = spec.count,
                           .table = &own.table,
                           .z = experts_.z,
                           .y = own.y,
                           .sums = own.sums,
                           .x = x,
                           .adds = !beside,
                           .shared = {}};
    if (spec.shared_ffn != 0 && !beside) {
      // Divided as down is.
      down.shared = {.gemm = gemm(PanelMatrix::kSharedDown),
                     .panels = home.Panel(PanelMatrix::kSharedDown, layer, extent.panels.begin),
                     .z = experts_.shared_z,
                     .weights = ChosenIn(thread, form).shared};
    }
    steps.Add(MakeStep(ExpertDownStep, Keep(expert_downs_, down), StepKind::kDown, layer, false));
  }
  const PanelMatrix shared = PanelMatrix::kSharedDown;
  for (const PanelExtent& extent : Work(form, thread, layer, shared)) {
    if (!IsBesideFfn(layer)) continue;
    const ProductOperand product =
        OperandOf(extent, shared, layer, experts_.shared_z, activations_.ffn_branch);
    steps.Add(MakeStep(ProductStep, Keep(products_, product), StepKind::kDown, layer, false));
  }
  steps.back().barrier = true;
}

void WeightNode::AddBesideFfn(size_t thread, size_t layer, ProgramForm form, Steps& steps) {
  const LayerShard& shard = shards_[thread]->layers()[layer];
  const model::LayerSpec& spec = config_.layer(layer);
  const AddNormsOperand* operand = Keep(
      add_both_norms_, AddNormsOperand{.elementwise = &elementwise_,
                                       .norms = NormsOf(spec.norm),
                                       .a = activations_.ffn_branch,
                                       .b = activations_.expert_branch,
                                       .a_weight = shard.of(model::TensorRole::kPostSharedNorm),
                                       .b_weight = shard.of(model::TensorRole::kPostExpertNorm),
                                       .n = config_.dim,
                                       .epsilon = spec.norm_epsilon,
                                       .share = ShareOf(thread, ProgramForm::kManyRows)});
  // Where threads share the rows of what follows, each goes on with its own.
  steps.Add(MakeStep(AddNormsStep, operand, StepKind::kNorm, layer, form == ProgramForm::kFewRows));
}

size_t WeightNode::MostDownColumns() const {
  size_t most = 0;
  for (size_t t = 0; t < plan_.threads.size(); ++t) {
    for (size_t layer = 0; layer < config_.layers; ++layer) {
      for (const ProgramForm form : {ProgramForm::kFewRows, ProgramForm::kManyRows}) {
        for (const PanelExtent& extent : Work(form, t, layer, PanelMatrix::kDown))
          most = std::max<size_t>(most, extent.panels.count() * kPanelRows);
      }
    }
  }
  return most;
}

}  // namespace larder::weight_node
