#include "pipeline/stage/attention_socket.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "model/step/step_kind.h"
#include "topology/affinity.h"
#include "weight_node/panel_map.h"

namespace larder::pipeline::inline stage {

using threadpool::Step;

std::vector<std::vector<size_t>> Projectors(const StagePlan& plan, size_t kind) {
  const model::LayerSpec& layer = plan.config.kinds[kind];
  const weight_node::LayerShape shape(layer);
  std::vector<std::vector<size_t>> projectors(layer.groups());
  // Threads compute their own panels (WeightNodeOptions::panels) in both forms, since attention
  // waits for the same flags in both.
  const weight_node::PanelMap map(plan.shards);
  for (size_t t = 0; t < plan.shards.threads.size(); ++t) {
    const auto work =
        map.Work(weight_node::ProgramForm::kFewRows, t, kind, weight_node::PanelMatrix::kQkv);
    for (const auto& part : weight_node::QkvParts(shape, work)) {
      auto& of_group = projectors[part.group];
      if (of_group.empty() || of_group.back() != t) of_group.push_back(t);
    }
  }
  return projectors;
}

std::vector<std::vector<std::vector<sync::EpochFlag*>>> ProjectedFlags(const StagePlan& plan,
                                                                       const Exchange& exchange,
                                                                       size_t half) {
  std::vector<std::vector<std::vector<sync::EpochFlag*>>> flags(plan.config.kinds.size());
  for (const size_t kind : plan.config.OwnKinds()) {
    const auto projectors = Projectors(plan, kind);
    flags[kind].resize(projectors.size());
    for (size_t head = 0; head < projectors.size(); ++head) {
      for (const size_t t : projectors[head])
        flags[kind][head].push_back(exchange.projected(half, t, head));
    }
  }
  return flags;
}

size_t ThreadHeads(const StagePlan& plan) {
  size_t most = 1;
  for (const size_t kind : plan.config.OwnKinds()) {
    const auto projectors = Projectors(plan, kind);
    std::vector<Range<size_t>> heads(plan.threads.size());  // of each thread
    for (size_t head = 0; head < projectors.size(); ++head) {
      for (const size_t t : projectors[head])
        heads[t] = {heads[t].count() == 0 ? head : heads[t].begin, head + 1};
    }
    for (const Range<size_t>& of : heads) most = std::max(most, of.count());
  }
  return most;
}

std::vector<size_t> GroupStrides(const model::ModelConfig& config) {
  std::vector<size_t> strides;
  for (const model::LayerSpec& kind : config.kinds)
    strides.push_back(weight_node::LayerShape(kind).group_panels * kernels::kPanelRows);
  return strides;
}

std::vector<size_t> StateStrides(const model::ModelConfig& config) {
  std::vector<size_t> strides;
  for (const model::LayerSpec& kind : config.kinds)
    strides.push_back(weight_node::LayerShape(kind).state_panels * kernels::kPanelRows);
  return strides;
}

// Looks for the first layer with missing output. If all its rows are projected, attention is
// behind; else the weight socket is, which has all its inputs. (Later layers may be partly done,
// since threads are not in lockstep.)
std::optional<AttentionId> HungAttention(const StagePlan& plan, const Exchange& exchange,
                                         uint32_t base_epoch, uint32_t halves) {
  std::vector<std::vector<std::vector<size_t>>> projectors_of;  // [kind of layer]
  for (size_t kind = 0; kind < plan.config.kinds.size(); ++kind)
    projectors_of.push_back(Projectors(plan, kind));
  const auto missing = [&](size_t layer, size_t half, AttentionId socket, uint32_t epoch) {
    if (plan.config.layer(layer).groups() == 0) return false;
    for (size_t group = 0; group < plan.attention[socket.index()].groups(); ++group) {
      if (!exchange.attended(half, socket, group)->Reached(epoch)) return true;
    }
    return false;
  };
  const auto projected = [&](size_t layer, size_t half, uint32_t epoch) {
    const auto& projectors = projectors_of[plan.config.KindOf(layer)];
    for (size_t head = 0; head < projectors.size(); ++head) {
      for (const size_t t : projectors[head]) {
        if (!exchange.projected(half, t, head)->Reached(epoch)) return false;
      }
    }
    return true;
  };
  for (size_t layer = 0; layer < plan.config.layers; ++layer) {
    const uint32_t epoch = base_epoch + static_cast<uint32_t>(layer) + 1;
    for (size_t half = 0; half < halves; ++half) {
      for (AttentionId socket(0); socket.index() < plan.attention.size(); ++socket) {
        if (!missing(layer, half, socket, epoch)) continue;
        return projected(layer, half, epoch) ? std::optional(socket) : std::nullopt;
      }
    }
  }
  return std::nullopt;  // attention has done its part
}

bool AttentionSocket::Hangs() const {
  return HungAttention(plan_, exchange_, base_epoch_.load(std::memory_order_relaxed),
                       halves_.load(std::memory_order_relaxed)) == index_;
}

namespace {

// In the socket's own numbering.
RowsShape RowsOf(const StagePlan& plan, const PlanAttentionSocket& socket) {
  model::Capacity capacity = plan.options.capacity;
  capacity.slots = socket.slots;
  std::vector<size_t> chunk_ends(socket.kv_pools.size());
  std::partial_sum(socket.kv_pools.begin(), socket.kv_pools.end(), chunk_ends.begin());
  return {.capacity = capacity, .slot_ends = {}, .chunk_ends = std::move(chunk_ends)};
}

}  // namespace

AttentionSocket::AttentionSocket(const StagePlan& plan, AttentionId index,
                                 const model::GgufFile& file, const Exchange& exchange,
                                 rdma::ShmLink& frames, AttentionReport& report,
                                 const SocketWaits& waits, const KvPartOptions& kv_files)
    : plan_(plan),
      index_(index),
      frames_(frames),
      report_(report),
      waits_(waits),
      wait_(waits.attention.at(index.index())),
      rows_(RowsOf(plan, plan.attention.at(index.index()))),
      kept_rows_(plan.options.capacity.max_batch_tokens),
      exchange_(exchange) {
  threadpool::Pool::TicksPerSecond();  // the first call measures it, so it is made before there are
                                       // frames
  report_.status.state.store(static_cast<uint32_t>(SocketState::kServing),
                             std::memory_order_relaxed);
  const PlanAttentionSocket& socket = plan.attention.at(index.index());
  KvPartOptions files = kv_files;
  files.cpus = topology::GetAffinity(pthread_self());
  pool_ = std::make_unique<threadpool::Pool>(PoolOf(socket.threads, wait_));
  const weight_node::AttentionIoRows rows = exchange.rows();
  node_ = std::make_unique<attention_node::AttentionNode>(
      plan.config, file,
      attention_node::AttentionNodeOptions{.isa = plan.options.isa,
                                           .tuning = plan.options.tuning.value(),
                                           .threads = socket.threads.size(),
                                           .slots = socket.slots,
                                           .context = plan.options.capacity.context,
                                           .kv_pools = socket.kv_pools,
                                           .kv_classes = plan.kv_classes,
                                           .node_of_thread = NodesOf(socket.threads),
                                           .halves = kHalves,
                                           .own_waiters = wait_.mode},
      attention_node::AttentionIo{.qkv = rows.qkv.data,
                                  .qkv_stride = rows.qkv.stride,
                                  .group_stride = GroupStrides(plan.config),
                                  .state_stride = StateStrides(plan.config),
                                  .out = rows.attn.data,
                                  .out_stride = rows.attn.stride});

  KvPart::Siblings siblings;
  for (const PlanAttentionSocket& other : plan.attention) {
    if (other.name != socket.name) siblings.push_back(other.name);
  }
  kv_part_ = std::make_unique<KvPart>(
      files, socket.name, plan.identity(),
      KvPart::Chunks{socket.kv_pools, plan.kv_classes.size(),
                     [this](uint32_t chunk) { return node_->kv().memory(chunk); }},
      siblings);
  ReportKv();

  for (size_t half = 0; half < kHalves; ++half)
    projected_[half] = ProjectedFlags(plan, exchange, half);
  for (size_t t = 0; t < socket.threads.size(); ++t) {
    // L3 groups are numbered as their first threads come.
    if (static_cast<size_t>(socket.threads[t].l3_group) == first_of_group_.size())
      first_of_group_.push_back(t);
  }
  for (size_t half = 0; half < kHalves; ++half) {
    attended_[half] = std::make_unique<sync::EpochFlag[]>(socket.threads.size());
    members_[half].resize(first_of_group_.size());
    for (size_t t = 0; t < socket.threads.size(); ++t) {
      const auto group = static_cast<size_t>(socket.threads[t].l3_group);
      if (t != first_of_group_[group]) members_[half][group].push_back(&attended_[half][t]);
    }
  }
  for (size_t halves = 1; halves <= kHalves; ++halves) BuildPrograms(exchange, halves);
}

void AttentionSocket::Serve(SocketStatus* status) {
  if (const char* wrong = Run(*status))
    throw Error("attention socket {}: its weight socket sent {}",
                plan_.attention[index_.index()].name, wrong);
}

Step AttentionSocket::Attended(const Exchange& exchange, size_t thread, size_t layer,
                               size_t half) const {
  const auto group = static_cast<size_t>(plan_.attention[index_.index()].threads[thread].l3_group);
  Step step;
  step.epoch_offset = static_cast<uint32_t>(layer + 1);
  step.layer = static_cast<uint16_t>(layer);
  step.kind = static_cast<uint16_t>(model::StepKind::kAttention);
  if (thread != first_of_group_[group]) {
    step.signal = &attended_[half][thread];
    return step;
  }
  step.waits = members_[half][group].data();
  step.wait_count = static_cast<uint32_t>(members_[half][group].size());
  step.signal = exchange.attended(half, index_, group);
  return step;
}

void AttentionSocket::BuildPrograms(const Exchange& exchange, size_t halves) {
  const size_t threads = plan_.attention[index_.index()].threads.size();
  auto& all = steps_[halves - 1];
  all.resize(threads);
  for (size_t t = 0; t < threads; ++t) {
    threadpool::ProgramBuilder steps;
    for (size_t layer = 0; layer < plan_.config.layers; ++layer) {
      for (size_t half = 0; half < halves; ++half) {
        const bool kept = layer > plan_.config.last_storing();
        steps.SetPart(static_cast<uint8_t>(kept ? kHalves + half : half));
        node_->AddLayer(t, layer, half, steps, [&](size_t head) {
          return std::span<sync::EpochFlag* const>(
              projected_[half][plan_.config.KindOf(layer)][head]);
        });
        if (plan_.config.layer(layer).groups() == 0) continue;
        const Step attended = Attended(exchange, t, layer, half);
        const bool own = attended.signal == &attended_[half][t];
        steps.SetWaiters(own ? wait_.mode : waits_.weight.mode);
        steps.Add(attended);
      }
    }
    all[t] = steps.Take();
    for (const Step& step : all[t]) {
      if (step.part % kHalves == 1 && step.signal != nullptr) second_half_.push_back(step.signal);
    }
    programs_[halves - 1].push_back({all[t].data(), static_cast<uint32_t>(all[t].size())});
  }
  // All layers signal the same ones.
  std::ranges::sort(second_half_);
  second_half_.erase(std::unique(second_half_.begin(), second_half_.end()), second_half_.end());
}

}  // namespace larder::pipeline::stage
