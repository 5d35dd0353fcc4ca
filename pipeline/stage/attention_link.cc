#include "pipeline/stage/attention_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/formats/panel_format.h"
#include "pipeline/stage/attention_socket.h"
#include "rdma/common/helper_thread.h"

namespace larder::pipeline::inline stage {
namespace {

// A frame has room for the usual micro-batch's heads; more rows take several frames, which are on
// their way while the next ones are copied.
constexpr size_t kRowsBytes = size_t{256} << 10;
constexpr size_t kLinkSlots = 8;
constexpr std::chrono::milliseconds kLookEvery{100};

std::vector<Range<size_t>> ColumnsOf(const model::LayerSpec& layer) {
  if (layer.latent.any()) return {{0, (layer.sizes.heads + 1) * layer.sizes.head_size}};
  const weight_node::LayerShape shape(layer);
  std::vector<Range<size_t>> columns;
  for (size_t group = 0; group < layer.groups(); ++group) {
    const weight_node::PanelRange panels = shape.of_group(group);
    columns.push_back({panels.begin * kernels::kPanelRows, panels.end * kernels::kPanelRows});
  }
  return columns;
}

CpuId LinkCpu(const StagePlan& plan, CpuId cpu) { return plan.options.pinned ? cpu : CpuId(); }

size_t MostColumns(const StagePlan& plan) {
  return std::max(weight_node::QkvStride(plan.config), weight_node::AttnStride(plan.config));
}

}  // namespace

rdma::LinkShape AttentionLinkShape(const StagePlan& plan, const rdma::LinkShape& messages) {
  const size_t bytes = std::max({messages.frame_bytes, sizeof(LinkFrame::Answer), kRowsBytes,
                                 MostColumns(plan) * sizeof(float)});
  return {.frame_bytes = sizeof(LinkFrame) + bytes, .slots = kLinkSlots};
}

AttentionLink::AttentionLink(const StagePlan& plan, AttentionId index, const Exchange& exchange,
                             AttentionReport& report, const sync::WaitPolicy& own,
                             size_t message_bytes, rdma::FrameLink out, rdma::FrameLink in)
    : plan_(plan),
      index_(index),
      exchange_(exchange),
      report_(report),
      wait_(own),
      message_bytes_(message_bytes),
      payload_bytes_(out.frame_bytes() - sizeof(LinkFrame)),
      out_(std::move(out)),
      in_(std::move(in)) {
  const model::ModelConfig& config = plan.config;
  columns_.resize(config.kinds.size());
  size_t most = 1;
  for (const size_t kind : config.OwnKinds()) {
    columns_[kind] = ColumnsOf(config.kinds[kind]);
    most = std::max(most, columns_[kind].size());
  }
  done_.resize(most);
  for (size_t half = 0; half < kHalves; ++half) {
    projected_[half] = ProjectedFlags(plan, exchange, half);
    for (size_t group = 0; group < plan.attention.at(index.index()).groups(); ++group)
      attended_[half].push_back(exchange.attended(half, index, group));
  }
  for (size_t layer = 0; layer < config.layers; ++layer) {
    if (config.layer(layer).groups() > 0) last_attending_ = layer;
  }
}

AttentionLink::~AttentionLink() = default;

sync::Fault AttentionLink::fault() const { return in_.fault() ? in_.fault() : out_.fault(); }

std::string AttentionLink::FaultText() const {
  return in_.fault() ? in_.FaultText() : out_.FaultText();
}

WeightEnd::WeightEnd(const StagePlan& plan, AttentionId index, const Exchange& exchange,
                     std::unique_ptr<rdma::ShmLink> messages, AttentionReport& report,
                     const SocketWaits& waits, rdma::FrameLink out, rdma::FrameLink in,
                     std::function<void(const AttentionLink&)> lost)
    : AttentionLink(plan, index, exchange, report, waits.attention.at(index.index()),
                    messages->frame_bytes(), std::move(out), std::move(in)),
      weight_mode_(waits.weight.mode),
      messages_(std::move(messages)) {
  thread_ = rdma::StartHelper([this] { Run(); },
                              LinkCpu(plan, plan.attention.at(index.index()).link_cpu));
  watch_ = rdma::StartHelper([this, lost = std::move(lost)] { Watch(lost); });
}

WeightEnd::~WeightEnd() {
  ExpectEnd();
  thread_.join();
  watch_.join();
}

void WeightEnd::ExpectEnd() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  wake_.notify_all();
}

// The thread of the rows may wait for the weight socket, for as long as no request comes.
void WeightEnd::Watch(const std::function<void(const AttentionLink&)>& lost) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kLookEvery, [this] { return ending_; })) {
    if (!fault()) continue;
    lost(*this);
    return;
  }
}

AttentionEnd::AttentionEnd(const StagePlan& plan, AttentionId index, const Exchange& exchange,
                           std::unique_ptr<rdma::ShmLink> messages, AttentionReport& report,
                           const SocketWaits& waits, rdma::FrameLink out, rdma::FrameLink in)
    : AttentionLink(plan, index, exchange, report, waits.weight, messages->frame_bytes(),
                    std::move(out), std::move(in)),
      attention_mode_(waits.attention.at(index.index()).mode),
      messages_(std::move(messages)),
      thread_(rdma::StartHelper([this] { Run(); },
                                LinkCpu(plan, plan.attention.at(index.index()).link_cpu_there))) {}

AttentionEnd::~AttentionEnd() { thread_.join(); }

}  // namespace larder::pipeline::stage
