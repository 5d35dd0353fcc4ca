#include "pipeline/stage/stage.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "topology/probe.h"

namespace larder::pipeline {

using threadpool::Step;
using weight_node::Phase;

namespace {

SocketWaits WaitsIn(const StageOptions& options, const StagePlan& plan) {
  SocketWaits waits{.weight = options.wait, .attention = options.attention_waits};
  if (waits.attention.empty()) waits.attention.assign(plan.attention.size(), options.wait);
  LARDER_CHECK(waits.attention.size() == plan.attention.size(), "{} policies", waits.attention.size());
  return waits;
}

constexpr double kResidencyBudgetS = 0.3;

}  // namespace

Stage::Stage(const StagePlan& plan, const model::GgufFile& file, const StageOptions& options)
    : plan_(plan), last_(options.last), waits_of_sockets_(WaitsIn(options, plan)) {
  threadpool::PoolOptions pool;
  weight_node::WeightNodeOptions weights{
      .isa = plan.options.isa,
      .decode_rows = plan.options.decode_rows,
      .prefill_rows = plan.options.prefill_rows,
      .logit_rows = LogitRows(plan.config, plan.options.decode_rows, plan.options.prefill_rows),
      .node_of_thread = {}};
  for (const PlanThread& thread : plan.threads) {
    pool.cpus.push_back(thread.cpu);
    pool.group_of_thread.push_back(thread.l3_group);
    weights.node_of_thread.push_back(thread.numa_node);
  }
  pool.wait = options.wait;
  if (options.yardstick) residency_.yardstick = options.yardstick(plan_);
  pool_ = std::make_unique<threadpool::Pool>(std::move(pool));
  weight_node::AttentionIoRows shared;
  if (plan_.separated()) {
    sockets_ = options.processes.empty()
                   ? AttentionSockets::StartThreads(plan_, file, waits_of_sockets_)
                   : AttentionSockets::Connect(plan_, options.processes, options.socket, waits_of_sockets_,
                                               options.connect_timeout_ms, options.link_key);
    shared = sockets_->exchange().rows();
    weights.shared_io = &shared;
  }
  logit_row_.resize(plan_.options.prefill_rows);
  weights_ = std::make_unique<weight_node::WeightNode>(plan_.config, plan_.shards, weights);
  Load(file, options);
  if (plan_.separated()) {
    LinkAttentionSockets();
  } else if (plan_.config.layers > 0) {
    PlaceAttention(file);
  }
  BuildPrograms();
  if (!options.yardstick) return;
  residency_.shards = ProbeResidency(kResidencyBudgetS);
  for (ShardResidency& shard : residency_.shards)
    shard.resident_share = ResidentShare(shard.reread_gbps, residency_.yardstick);
}

void Stage::PlaceAttention(const model::GgufFile& file) {
  const auto& activations = weights_->activations();
  attention_ = std::make_unique<attention_node::AttentionNode>(
      plan_.config, file,
      attention_node::AttentionNodeOptions{.isa = plan_.options.isa,
                                           .threads = plan_.threads.size(),
                                           .slots = plan_.options.slots,
                                           .context = plan_.options.context,
                                           .node = plan_.threads[0].numa_node},
      attention_node::AttentionIo{.qkv = activations.qkv.data,
                                  .qkv_stride = activations.qkv.stride,
                                  .group_stride = weights_->shape().group_panels * kernels::kPanelRows,
                                  .out = activations.attn.data,
                                  .out_stride = activations.attn.stride});

  const size_t threads = plan_.threads.size(), heads = plan_.config.kv_heads;
  flags_ = std::make_unique<sync::EpochFlag[]>(
      threads * heads + heads);  // [thread][kv_head] projected, then [kv_head] appended
  signals_[0].assign(threads, std::vector<sync::EpochFlag*>(heads, nullptr));
  waits_.assign(threads, std::vector<std::vector<sync::EpochFlag*>>(heads));
  const auto projectors = Projectors(plan_);
  for (size_t head = 0; head < heads; ++head) {
    const auto owners = attention_->OwnersOf(head);
    for (size_t t = owners.first; t <= owners.last; ++t) {
      for (const size_t projector : projectors[head]) {
        if (projector == t) continue;  // program order
        signals_[0][projector][head] = &flags_[projector * heads + head];
        waits_[t][head].push_back(signals_[0][projector][head]);
      }
    }
  }
}

void Stage::LinkAttentionSockets() {
  const Exchange& exchange = sockets_->exchange();
  const size_t threads = plan_.threads.size(), heads = plan_.config.kv_heads;
  const auto projectors = Projectors(plan_);
  for (size_t half = 0; half < kHalves; ++half) {
    signals_[half].assign(threads, std::vector<sync::EpochFlag*>(heads, nullptr));
    for (size_t head = 0; head < heads; ++head) {
      for (const size_t t : projectors[head]) signals_[half][t][head] = exchange.projected(half, t, head);
      for (size_t socket = 0; socket < plan_.attention.size(); ++socket) {
        const auto owners = attention_node::OwnersOf(head, heads, plan_.attention[socket].threads.size());
        for (size_t t = owners.first; t <= owners.last; ++t)
          attended_[half].push_back(exchange.attended(half, socket, t, head));
      }
    }
  }
}

void Stage::Load(const model::GgufFile& file, const StageOptions& options) {
  struct Context {
    Stage* stage;
    const model::GgufFile& file;
    weight_node::LoadProgress progress;
  } context{this, file, {}};
  context.progress.all_bytes = plan_.weight_bytes + plan_.embedding_bytes;
  context.progress.report = options.progress;
  pool_->ForEach(
      [](void* raw, int thread) {
        auto& c = *static_cast<Context*>(raw);
        c.stage->weights_->Pack(c.file, static_cast<size_t>(thread), c.progress);
      },
      &context);
  if (options.progress) options.progress(context.progress.all_bytes, context.progress.all_bytes);
  weights_->Finish();
}

void Stage::BuildPrograms() {
  const size_t threads = plan_.threads.size();
  auto build = [&](Programs& built, auto&& steps_of) {
    for (size_t t = 0; t < threads; ++t) built.steps.push_back(steps_of(t));
    for (const auto& steps : built.steps)
      built.programs.push_back({steps.data(), static_cast<uint32_t>(steps.size())});
  };
  if (plan_.config.layers == 0) {
    build(embed_, [&](size_t t) {
      std::vector<Step> steps;
      weights_->AddEmbed(t, steps);
      weights_->AddSend(t, false, steps);
      return steps;
    });
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      build(head_[static_cast<size_t>(phase)], [&](size_t t) {
        std::vector<Step> steps;
        weights_->AddReceive(t, steps);
        weights_->AddHead(t, phase, steps);
        return steps;
      });
    }
    return;
  }
  for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
    for (size_t halves = 1; halves <= (plan_.separated() ? kHalves : 1); ++halves) {
      build(programs_[static_cast<size_t>(phase)][halves - 1],
            [&](size_t t) { return BuildSteps(t, phase, halves); });
    }
  }
}

std::vector<Step> Stage::BuildSteps(size_t thread, Phase phase, size_t halves) {
  const size_t layers = plan_.config.layers;
  std::vector<Step> steps;
  // A half's way through a layer is all that follows its heads' return, and the next layer's QKV: then this
  // half's attention can begin while the weight threads turn to the other half.
  auto add = [&](size_t half, auto&& add_steps) {
    const size_t first = steps.size();
    add_steps();
    for (size_t i = first; i < steps.size(); ++i)
      steps[i].part = static_cast<uint8_t>(halves == 1 ? 0 : half + 1);
  };
  auto add_qkv = [&](size_t layer, size_t half) {
    weights_->AddQkv(thread, layer, phase, steps, [&](size_t head) { return signals_[half][thread][head]; });
  };
  if (whole()) {
    weights_->AddEmbed(thread, steps);
  } else {
    weights_->AddReceive(thread, steps);
  }
  for (size_t half = 0; half < halves; ++half) add(half, [&] { add_qkv(0, half); });
  for (size_t layer = 0; layer < layers; ++layer) {
    for (size_t half = 0; half < halves; ++half) {
      add(half, [&] {
        AddAttention(thread, layer, half, steps);
        weights_->AddAfterAttention(thread, layer, phase, steps);
        if (layer + 1 < layers) add_qkv(layer + 1, half);
      });
    }
  }
  if (whole()) {
    weights_->AddHead(thread, phase, steps);
  } else {
    weights_->AddSend(thread, last_, steps);
  }
  // Who waits for a head's rows: attention sockets, or (colocated) the threads of this one.
  for (Step& step : steps)
    step.waiters = plan_.separated() ? waits_of_sockets_.attention_mode() : waits_of_sockets_.weight.mode;
  return steps;
}

void Stage::AddAttention(size_t thread, size_t layer, size_t half, std::vector<Step>& steps) {
  Step meet;  // all heads are needed by every row of O
  meet.kind = static_cast<uint16_t>(model::StepKind::kAttention);
  meet.layer = static_cast<uint16_t>(layer);
  meet.epoch_offset = static_cast<uint32_t>(layer + 1);
  if (plan_.separated()) {
    meet.waits = attended_[half].data();
    meet.wait_count = static_cast<uint32_t>(attended_[half].size());
  } else {
    const size_t heads = plan_.config.kv_heads;
    attention_->AddLayer(
        thread, layer, steps,
        [&](size_t head) { return std::span<sync::EpochFlag* const>(waits_[thread][head]); },
        [&](size_t head) {
          const auto owners = attention_->OwnersOf(head);
          return owners.first == owners.last ? nullptr : &flags_[plan_.threads.size() * heads + head];
        },
        [](size_t) { return nullptr; });
    meet.barrier = true;
  }
  steps.push_back(meet);
}

void Stage::Execute(model::BatchRows& frame, uint32_t first_half) {
  LARDER_CHECK(frame.rows >= 1 && frame.rows <= max_rows() && frame.logit_rows <= max_logit_rows());
  LARDER_CHECK(first_half < frame.rows && (first_half == 0 || plan_.separated()));
  const Phase phase = frame.rows <= plan_.options.decode_rows ? Phase::kDecode : Phase::kPrefill;
  if (sockets_) {
    if (refresh_.Due(pool_->next_base_epoch())) RefreshFlags();
    sockets_->Send(frame, first_half, pool_->next_base_epoch());
  }
  model::BatchRows halves[kHalves] = {frame, frame};
  halves[0].rows = first_half;
  halves[1].first_row = first_half;
  halves[1].rows -= first_half;
  halves[1].slot += first_half;
  halves[1].position += first_half;
  void* const parts[] = {&frame, &halves[0], &halves[1]};
  KeepLogitRows(frame);
  pool_->Execute(programs_[static_cast<size_t>(phase)][first_half == 0 ? 0 : 1].programs, parts,
                 static_cast<uint32_t>(plan_.config.layers));
}

void Stage::KeepLogitRows(const model::BatchRows& frame) {
  if (frame.logit_rows > 0) std::copy_n(frame.logit_row, frame.logit_rows, logit_row_.data());
}

void Stage::RefreshFlags() {
  for (const auto& of_thread : signals_[1]) {
    for (sync::EpochFlag* flag : of_thread) {
      if (flag != nullptr) flag->Signal(pool_->next_base_epoch());
    }
  }
}

void Stage::Embed(model::BatchRows& frame) {
  LARDER_CHECK(frame.rows >= 1 && frame.rows <= max_rows());
  pool_->Execute(embed_.programs, &frame, 0);
}

void Stage::Head(model::BatchRows& frame) {
  LARDER_CHECK(frame.rows == frame.logit_rows && frame.rows >= 1 && frame.rows <= max_logit_rows());
  const Phase phase = frame.rows <= plan_.options.decode_rows ? Phase::kDecode : Phase::kPrefill;
  KeepLogitRows(frame);
  pool_->Execute(head_[static_cast<size_t>(phase)].programs, &frame, 0);
}

std::span<const float> Stage::logits(size_t i) const {
  return {weights_->activations().logits.row(i), plan_.config.vocab};
}
bool Stage::finite(size_t i) const {
  const float* x = weights_->activations().x.row(logit_row_.at(i));
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  for (size_t k = 0; k < plan_.config.dim; ++k)
    bad |= (std::bit_cast<uint32_t>(x[k]) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}
size_t Stage::max_rows() const { return plan_.options.prefill_rows; }
size_t Stage::max_logit_rows() const { return weights_->activations().logit_rows; }

std::span<const Step> Stage::steps(Phase phase, size_t thread, size_t halves) const {
  return programs_[static_cast<size_t>(phase)][halves - 1].steps[thread];
}

std::vector<ShardResidency> Stage::ProbeResidency(double budget_s) {
  struct Context {
    Stage* stage;
    double budget_s;
    std::vector<ShardResidency> result;
  } context{this, budget_s, std::vector<ShardResidency>(plan_.threads.size())};
  pool_->ForEach(
      [](void* raw, int thread) {
        auto& c = *static_cast<Context*>(raw);
        const auto bytes = c.stage->weights_->shards(static_cast<size_t>(thread)).weights();
        c.result[static_cast<size_t>(thread)] = {thread, bytes.size(),
                                                 topology::ReadBandwidthGbps(bytes, c.budget_s)};
      },
      &context);
  return context.result;
}

}  // namespace larder::pipeline
