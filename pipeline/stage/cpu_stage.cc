#include "pipeline/stage/cpu_stage.h"

#include <algorithm>

#include "base/check.h"
#include "topology/affinity.h"

namespace larder::pipeline::inline stage {

using threadpool::Step;
using weight_node::ProgramForm;

namespace {

SocketWaits WaitsIn(const StageOptions& options, const StagePlan& plan) {
  SocketWaits waits{.weight = options.wait, .attention = options.attention_waits};
  if (waits.attention.empty()) waits.attention.assign(plan.attention.size(), options.wait);
  LARDER_CHECK(waits.attention.size() == plan.attention.size(), "{} policies",
               waits.attention.size());
  return waits;
}

}  // namespace

std::unique_ptr<Stage> MakeStage(const StagePlan& plan, const model::GgufFile& file,
                                 const StageOptions& options, bool last) {
  return std::make_unique<CpuStage>(plan, file, options, last);
}

CpuStage::CpuStage(const StagePlan& stage_plan, const model::GgufFile& file,
                   const StageOptions& options, bool last)
    : cpus_(topology::GetAffinity(pthread_self())),
      packed_(stage_plan, options),
      kept_rows_(packed_.max_batch_tokens()),
      last_(last),
      waits_of_sockets_(WaitsIn(options, stage_plan)) {
  LARDER_CHECK(plan().config.layers > 0);
  if (separated()) {
    sockets_ =
        options.processes.empty()
            ? AttentionClient::StartThreads(plan(), file, waits_of_sockets_, options.kv_files)
            : AttentionClient::Connect(plan(), options.processes, options.socket, waits_of_sockets_,
                                       options.connect_timeout_ms, options.link_key,
                                       options.attention_links);
    const weight_node::AttentionIoRows shared = sockets_->exchange().rows();
    packed_.Load(file, options, &shared);
    LinkAttentionSockets();
  } else {
    packed_.Load(file, options, nullptr);
    PlaceAttention(file);
    KvPartOptions kv_files = options.kv_files;
    kv_files.cpus = cpus_;
    kv_part_ = std::make_unique<KvPart>(
        kv_files, options.socket, plan().identity(),
        KvPart::Chunks{plan().kv_pools, plan().kv_classes.size(),
                       [this](uint32_t chunk) { return attention_->kv().memory(chunk); }});
  }
  LARDER_CHECK(keeps_logit_rows() || plan().config.last_storing() + 1 == plan().config.layers);
  BuildPrograms();
  packed_.Warm(options);
}

void CpuStage::PlaceAttention(const model::GgufFile& file) {
  const auto& activations = packed_.weights().activations();
  attention_ = std::make_unique<attention_node::AttentionNode>(
      plan().config, file,
      attention_node::AttentionNodeOptions{.isa = plan().options.isa,
                                           .tuning = plan().options.tuning.value(),
                                           .threads = plan().threads.size(),
                                           .slots = plan().options.capacity.slots,
                                           .context = plan().options.capacity.context,
                                           .kv_pools = plan().kv_pools,
                                           .kv_classes = plan().kv_classes,
                                           .node_of_thread = NodesOf(plan().threads),
                                           .own_waiters = waits_of_sockets_.weight.mode},
      attention_node::AttentionIo{.qkv = activations.qkv.data,
                                  .qkv_stride = activations.qkv.stride,
                                  .group_stride = GroupStrides(plan().config),
                                  .state_stride = StateStrides(plan().config),
                                  .out = activations.attn.data,
                                  .out_stride = activations.attn.stride});

  const model::ModelConfig& config = plan().config;
  const size_t threads = plan().threads.size(),
               most_heads =
                   config.Most([](const model::LayerSpec&layer) { return layer.groups(); });
  flags_ = std::make_unique<sync::EpochFlag[]>(threads * most_heads);  // [thread][kv_head]:
                                                                       // projected
  head_flags_.resize(config.kinds.size());
  for (const size_t kind : config.OwnKinds()) {
    const auto projectors = Projectors(plan(), kind);
    const size_t heads = projectors.size();
    HeadFlags& of = head_flags_[kind];
    of.signals[0].assign(threads, std::vector<sync::EpochFlag*>(heads, nullptr));
    of.waits.assign(threads, std::vector<std::vector<sync::EpochFlag*>>(heads));
    for (size_t head = 0; head < heads; ++head) {
      const auto owners = attention_node::OwnersOfGroup(config.kinds[kind], head, threads);
      for (size_t t = owners.begin; t < owners.end; ++t) {
        for (const size_t projector : projectors[head]) {
          if (projector == t) continue;  // program order
          of.signals[0][projector][head] = &flags_[projector * most_heads + head];
          of.waits[t][head].push_back(of.signals[0][projector][head]);
        }
      }
    }
  }
}

void CpuStage::LinkAttentionSockets() {
  const Exchange& exchange = sockets_->exchange();
  const size_t threads = plan().threads.size();
  head_flags_.resize(plan().config.kinds.size());
  for (const size_t kind : plan().config.OwnKinds()) {
    const auto projectors = Projectors(plan(), kind);
    const size_t heads = projectors.size();
    HeadFlags& of = head_flags_[kind];
    for (size_t half = 0; half < kHalves; ++half) {
      of.signals[half].assign(threads, std::vector<sync::EpochFlag*>(heads, nullptr));
      for (size_t head = 0; head < heads; ++head) {
        for (const size_t t : projectors[head])
          of.signals[half][t][head] = exchange.projected(half, t, head);
      }
    }
  }
  for (size_t half = 0; half < kHalves; ++half) {
    for (AttentionId socket(0); socket.index() < plan().attention.size(); ++socket) {
      for (size_t group = 0; group < plan().attention[socket.index()].groups(); ++group)
        attended_[half].push_back(exchange.attended(half, socket, group));
    }
  }
}

void CpuStage::BuildPrograms() {
  for (const ProgramForm form : {ProgramForm::kFewRows, ProgramForm::kManyRows}) {
    for (size_t halves = 1; halves <= (separated() ? kHalves : 1); ++halves) {
      programs_[static_cast<size_t>(form)][halves - 1] = ThreadPrograms(
          plan().threads.size(), [&](size_t t) { return BuildSteps(t, form, halves); });
    }
  }
}

std::vector<Step> CpuStage::BuildSteps(size_t thread, ProgramForm form, size_t halves) {
  const size_t layers = plan().config.layers;
  threadpool::ProgramBuilder steps;
  // Of layers behind this one, and in it behind attention, only logit rows are needed.
  const size_t last_storing = plan().config.last_storing();
  const auto keeps = [&](size_t layer) { return layer == last_storing && keeps_logit_rows(); };
  auto add_qkv = [&](size_t layer, size_t half) {
    // The threads that wait for a head's rows are the attention sockets' or, if colocated, this
    // socket's own.
    steps.SetWaiters(separated() ? waits_of_sockets_.attention_mode()
                                 : waits_of_sockets_.weight.mode);
    packed_.weights().AddBeforeAttention(
        thread, layer, form, half, keeps(layer), steps,
        [&](size_t head) { return FlagsOf(layer).signals[half][thread][head]; });
    steps.SetWaiters(sync::WaitPolicy::Mode::kAdaptive);
  };
  if (plan().config.ends) {
    packed_.weights().AddEmbed(thread, steps);
    packed_.weights().AddInputs(thread, form, steps);
  } else {
    packed_.weights().AddReceive(thread, true, steps);
  }
  // A half's section consists of all steps after its heads' return and the next layer's QKV. Then
  // its attention can begin while the weight threads compute the other half.
  for (size_t half = 0; half < halves; ++half) {
    steps.SetPart(PartOf(half, halves, false));
    if (half == 0) packed_.live().AddSample(thread, 0, steps);
    add_qkv(0, half);
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    for (size_t half = 0; half < halves; ++half) {
      steps.SetPart(PartOf(half, halves, keeps_logit_rows() && layer > last_storing));
      AddAttention(thread, layer, half, steps);
      const bool keep = keeps(layer);
      if (keep) {
        packed_.weights().AddKeep(thread, layer, form, steps);
        steps.SetPart(PartOf(half, halves, true));
      }
      packed_.weights().AddAfterAttention(thread, layer, form, half, keep, steps);
      if (layer + 1 == layers) continue;
      if (half == 0) packed_.live().AddSample(thread, layer + 1, steps);
      add_qkv(layer + 1, half);
    }
  }
  steps.SetPart(keeps_logit_rows() ? kKept : kWhole);
  if (plan().config.ends) {
    packed_.live().AddSample(thread, layers, steps);
    packed_.weights().AddLmHead(thread, form, steps);
  } else {
    packed_.weights().AddSend(thread, form, last_, steps);
  }
  return steps.Take();
}

void CpuStage::AddAttention(size_t thread, size_t layer, size_t half,
                            threadpool::ProgramBuilder& steps) {
  Step meet;  // every row of O needs all heads
  meet.kind = static_cast<uint16_t>(model::StepKind::kAttention);
  meet.layer = static_cast<uint16_t>(layer);
  meet.epoch_offset = static_cast<uint32_t>(layer + 1);
  if (separated()) {
    if (plan().config.layer(layer).groups() > 0) {
      meet.waits = attended_[half].data();
      meet.wait_count = static_cast<uint32_t>(attended_[half].size());
    }
  } else {
    attention_->AddLayer(thread, layer, half, steps, [&](size_t head) {
      return std::span<sync::EpochFlag* const>(FlagsOf(layer).waits[thread][head]);
    });
    meet.barrier = true;
  }
  steps.SetWaiters(sync::WaitPolicy::Mode::kAdaptive);
  steps.Add(meet);
}

std::span<const Step> CpuStage::steps(ProgramForm form, size_t thread, size_t halves) const {
  return programs_[static_cast<size_t>(form)][halves - 1].steps[thread];
}

topology::ScatteredBytes CpuStage::KvMemory(uint32_t chunk) {
  if (attention_) return attention_->kv().memory(chunk);
  for (AttentionId i(0); i.index() < plan().attention.size(); ++i) {
    const PlanAttentionSocket& socket = plan().attention[i.index()];
    if (chunk >= socket.first_chunk + socket.kv_chunks) continue;
    const attention_node::KvRegion* kv = sockets_->kv(i);
    return kv != nullptr ? kv->memory(static_cast<uint32_t>(chunk - socket.first_chunk))
                         : topology::ScatteredBytes();
  }
  return {};
}

}  // namespace larder::pipeline::stage
