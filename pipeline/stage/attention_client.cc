#include "pipeline/stage/attention_client.h"

#include <exception>
#include <future>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/formats/kv_page.h"
#include "rdma/common/fault_signal.h"

namespace larder::pipeline::inline stage {
namespace {

// Frames in flight on a link. The weight socket waits for a frame's heads before it sends the next,
// so one slot would be enough; the second lets the stop message follow without waiting.
constexpr size_t kFrameSlots = 2;

rdma::WaitsHow HowOf(const sync::WaitPolicy& wait) {
  return wait.mode == sync::WaitPolicy::Mode::kSpin ? rdma::WaitsHow::kSpins
                                                    : rdma::WaitsHow::kSleeps;
}

// mine, peers: how this process's threads and the peer's threads wait.
rdma::Hello MakeHello(const StagePlan& plan, const SegmentShape& shape, const std::string& name,
                      const sync::WaitPolicy& mine, const sync::WaitPolicy& peers) {
  rdma::Hello hello;
  hello.waits = HowOf(mine);
  hello.peer_waits = HowOf(peers);
  hello.plan_hash = plan.ExchangeHash();
  hello.memory_bytes = shape.bytes();
  hello.SetSocketName(name);
  return hello;
}

std::span<std::byte> LinkRegion(const rdma::SharedMemory& memory, const SegmentShape& shape,
                                AttentionId socket) {
  return memory.span().subspan(shape.link_offset(socket), rdma::ShmLink::RegionBytes(shape.link));
}

AttentionReport& ReportIn(const rdma::SharedMemory& memory, const SegmentShape& shape,
                          AttentionId socket) {
  return *reinterpret_cast<AttentionReport*>(memory.data() + shape.report_offset(socket));
}

}  // namespace

SegmentShape::SegmentShape(const StagePlan& plan)
    : exchange(plan.config, plan.options.capacity.max_batch_tokens, plan.threads.size(),
               ThreadHeads(plan),
               [&] {
                 std::vector<size_t> groups;
                 for (const auto& socket : plan.attention) groups.push_back(socket.groups());
                 return groups;
               }()),
      link{.frame_bytes = FrameMessage::Bytes(
               plan.options.capacity.max_batch_tokens,
               model::MaxKvUpdates(plan.options.capacity, kernels::kChunkPositions)),
           .slots = kFrameSlots},
      sockets(plan.attention.size()) {}

size_t SegmentShape::link_offset(AttentionId socket) const {
  return RoundUp(exchange.bytes(), kPageBytes) +
         socket.index() * RoundUp(rdma::ShmLink::RegionBytes(link), kPageBytes);
}
size_t SegmentShape::report_offset(AttentionId socket) const {
  return link_offset(end()) + socket.index() * sizeof(AttentionReport);
}
size_t SegmentShape::bytes() const { return RoundUp(report_offset(end()), kPageBytes); }

std::string ControlName(const std::string& cluster, const std::string& socket) {
  return "larder/" + cluster + "/" + socket;
}

AttentionClient::AttentionClient(const StagePlan& plan, const SocketWaits& waits)
    : plan_(plan),
      wait_(waits.weight),
      shape_(plan),
      memory_(rdma::SharedMemory::Create(shape_.bytes(), "larder-exchange")) {
  exchange_ = std::make_unique<Exchange>(shape_.exchange, memory_.data());
  for (AttentionId i(0); i.index() < plan.attention.size(); ++i) {
    rdma::ShmLink::Format(LinkRegion(memory_, shape_, i), shape_.link);
    senders_.push_back(std::make_unique<rdma::ShmLink>(LinkRegion(memory_, shape_, i), shape_.link,
                                                       rdma::LinkSide::kSend));
  }
}

AttentionReport& AttentionClient::report(AttentionId socket) const {
  return ReportIn(memory_, shape_, socket);
}

std::optional<AttentionId> AttentionClient::Hung() const {
  if (const AttentionId pinged = pinged_.load(std::memory_order_relaxed); pinged.valid())
    return pinged;
  return HungAttention(plan_, *exchange_, base_epoch_.load(std::memory_order_relaxed),
                       halves_.load(std::memory_order_relaxed));
}

std::unique_ptr<AttentionClient> AttentionClient::StartThreads(const StagePlan& plan,
                                                               const model::GgufFile& file,
                                                               const SocketWaits& waits,
                                                               const KvPartOptions& kv_files) {
  std::unique_ptr<AttentionClient> sockets(new AttentionClient(plan, waits));
  std::vector<std::future<void>> ready;
  sockets->served_.resize(plan.attention.size());
  for (AttentionId i(0); i.index() < plan.attention.size(); ++i) {
    auto& receiver = sockets->receivers_.emplace_back(
        std::make_unique<rdma::ShmLink>(LinkRegion(sockets->memory_, sockets->shape_, i),
                                        sockets->shape_.link, rdma::LinkSide::kReceive));
    std::promise<void> built;
    ready.push_back(built.get_future());
    auto serve = [&plan, &file, i, waits, kv_files, served = &sockets->served_[i.index()],
                  exchange = sockets->exchange_.get(), link = receiver.get(),
                  report = &sockets->report(i), built = std::move(built)]() mutable {
      std::unique_ptr<AttentionSocket> socket;
      try {
        socket = std::make_unique<AttentionSocket>(plan, i, file, *exchange, *link, *report, waits,
                                                   kv_files);
      } catch (...) {
        built.set_exception(std::current_exception());
        return;
      }
      *served = socket.get();
      built.set_value();
      try {
        socket->Serve();
      } catch (const Error& error) {
        LARDER_CHECK(false, "{}", error.what());  // both ends are this process
      }
    };
    // If something throws from here on, the destructor stops the threads that were started.
    try {
      sockets->threads_.emplace_back(std::move(serve));
    } catch (const std::system_error& error) {
      throw Error("attention socket {}: cannot start its thread: {}; check `ulimit -u`",
                  plan.attention[i.index()].name, error.what());
    }
  }
  for (auto& future : ready) future.get();
  return sockets;
}

std::unique_ptr<AttentionClient> AttentionClient::Connect(
    const StagePlan& plan, const std::string& cluster, const std::string& socket,
    const SocketWaits& waits, int timeout_ms, const std::shared_ptr<const rdma::LinkKey>& key,
    const AttentionLinks& links) {
  std::unique_ptr<AttentionClient> sockets(new AttentionClient(plan, waits));
  sockets->channels_.resize(plan.attention.size());
  sockets->monitors_.resize(plan.attention.size());
  sockets->ends_.resize(plan.attention.size());
  for (AttentionId i(0); i.index() < plan.attention.size(); ++i) {
    if (i.index() < links.of.size() && links.of[i.index()]) {
      sockets->ConnectServer(i, *links.of[i.index()], links.identity, waits, timeout_ms);
      continue;
    }
    const rdma::Hello mine =
        MakeHello(plan, sockets->shape_, socket, waits.weight, waits.attention.at(i.index()));
    auto& channel = sockets->channels_[i.index()];
    channel = std::make_unique<rdma::ControlChannel>(
        rdma::ConnectHello(ControlName(cluster, plan.attention[i.index()].name), mine, timeout_ms,
                           rdma::LinkKey::Of(key)));
    channel->SendMemory(sockets->memory_);
  }
  for (size_t i = 0; i < plan.attention.size(); ++i) {
    const auto& channel = sockets->channels_[i];
    if (!channel) continue;
    channel->WaitReady(timeout_ms);
    channel->Ready();
    sockets->monitors_[i] = std::make_unique<rdma::PeerMonitor>(*channel);
  }
  return sockets;
}

void AttentionClient::ConnectServer(AttentionId socket, const AttentionEndpoints& ends,
                                    rdma::LinkIdentity identity, const SocketWaits& waits,
                                    int timeout_ms) {
  const rdma::LinkShape shape = AttentionLinkShape(plan_, shape_.link);
  identity.session = rdma::NewSession();
  rdma::LinkListener listener(ends.back);
  rdma::FrameLink out = rdma::ConnectLink(ends.there, shape, identity, timeout_ms);
  rdma::FrameLink in = listener.Accept(shape, identity, timeout_ms);
  const auto lost = [name = plan_.attention[socket.index()].name](const AttentionLink& link) {
    rdma::StopAsPeerIsLost(name, fmt::format("attention socket {}:", name), link.FaultText(),
                           rdma::WasStopped(link.fault()));
  };
  ends_[socket.index()] = std::make_unique<WeightEnd>(
      plan_, socket, *exchange_,
      std::make_unique<rdma::ShmLink>(LinkRegion(memory_, shape_, socket), shape_.link,
                                      rdma::LinkSide::kReceive),
      report(socket), waits, std::move(out), std::move(in), lost);
}

void AttentionClient::LinkFailed(AttentionId socket) const {
  // Treated as if the process were gone, since it writes what no attention socket writes.
  const size_t at = socket.index();
  if (at < channels_.size() && channels_[at])
    rdma::StopWhenPeerIsLost (*channels_[at])(channels_[at]->peer_pid(), rdma::PeerEnd::kGone);
  LARDER_CHECK(false, "attention socket {}: link fault", plan_.attention[at].name);
}

AttentionClient::~AttentionClient() {
  for (AttentionId i(0); i.index() < senders_.size(); ++i) {
    const size_t at = i.index();
    const bool linked = at < ends_.size() && ends_[at];
    const bool served = at < threads_.size() || (at < monitors_.size() && monitors_[at]) || linked;
    if (!served) continue;
    if (linked) ends_[at]->ExpectEnd();
    BeginMessage(i, FrameMessage::Kind::kStop, 0);
    senders_[i.index()]->EndSend();
  }
  monitors_.clear();
  for (auto& channel : channels_) {
    if (channel) channel->Bye();
  }
  ends_.clear();
  for (std::thread& thread : threads_) thread.join();
}

void DryRunAttention(const StagePlan& plan, AttentionId index, const model::GgufFile& file,
                     const SocketWaits& waits, const KvPartOptions& kv_files) {
  const SegmentShape shape(plan);
  const auto memory = rdma::SharedMemory::Create(shape.bytes(), "larder-rehearsal");
  const Exchange exchange(shape.exchange, memory.data());
  rdma::ShmLink::Format(LinkRegion(memory, shape, index), shape.link);
  rdma::ShmLink link(LinkRegion(memory, shape, index), shape.link, rdma::LinkSide::kReceive);
  const AttentionSocket socket(plan, index, file, exchange, link, ReportIn(memory, shape, index),
                               waits, kv_files);
}

void ServeAttentionProcess(const StagePlan& plan, AttentionId index, const model::GgufFile& file,
                           rdma::ControlListener& listener, const SocketWaits& waits,
                           SocketStatus* status, const std::shared_ptr<const rdma::LinkKey>& key,
                           const WatchAttention& watch, const KvPartOptions& kv_files) {
  const SegmentShape shape(plan);
  rdma::ControlChannel channel =
      listener.AcceptHello(MakeHello(plan, shape, plan.attention.at(index.index()).name,
                                     waits.attention.at(index.index()), waits.weight),
                           rdma::kNoTimeout, rdma::LinkKey::Of(key));
  const rdma::SharedMemory memory = channel.ReceiveMemory(shape.bytes(), 10000);
  const Exchange exchange(shape.exchange, memory.data());
  rdma::ShmLink link(LinkRegion(memory, shape, index), shape.link, rdma::LinkSide::kReceive);
  AttentionSocket socket(plan, index, file, exchange, link, ReportIn(memory, shape, index), waits,
                         kv_files);
  channel.Ready();
  channel.WaitReady(10000);
  rdma::PeerMonitor monitor(channel);
  SocketStatus uncounted;
  if (status == nullptr) status = &uncounted;
  status->state.store(static_cast<uint32_t>(SocketState::kServing), std::memory_order_relaxed);
  const std::shared_ptr<void> watched = watch ? watch(socket) : nullptr;
  socket.Serve(status);
  channel.Bye();  // before the weight socket's monitor can take our closed channel for a crash
}

namespace {

// If the weight socket gives up meanwhile, the next one must not wait for this one's attempt.
rdma::FrameLink ConnectBack(const AttentionEndpoints& ends, const rdma::LinkShape& shape,
                            rdma::LinkIdentity identity, const rdma::FrameLink& in) {
  constexpr int kAttempts = 5, kAttemptMs = 2000;
  identity.session = in.session();
  for (int attempt = 1;; ++attempt) {
    try {
      return rdma::ConnectLink(ends.back, shape, identity, kAttemptMs);
    } catch (const Error&) {
      if (in.fault()) throw Error("{}", in.FaultText());
      if (attempt == kAttempts) throw;
    }
  }
}

}  // namespace

void ServeAttentionServer(const StagePlan& plan, AttentionId index, const model::GgufFile& file,
                          rdma::LinkListener& listener, const AttentionEndpoints& ends,
                          const rdma::LinkIdentity& identity, const SocketWaits& waits,
                          SocketStatus* status, const WatchAttention& watch,
                          const KvPartOptions& kv_files,
                          const std::function<void(const std::string&)>& log) {
  const std::string& name = plan.attention.at(index.index()).name;
  const SegmentShape shape(plan);
  const rdma::LinkShape link_shape = AttentionLinkShape(plan, shape.link);
  rdma::FrameLink in = listener.Accept(link_shape, identity, rdma::kNoTimeout);
  rdma::FrameLink out = ConnectBack(ends, link_shape, identity, in);
  if (log) {
    log(fmt::format("attention socket {}: receives from {} by {}", name, in.peer(),
                    in.description()));
    log(fmt::format("attention socket {}: sends to {} by {}", name, out.peer(), out.description()));
  }
  const auto memory = rdma::SharedMemory::Create(shape.bytes(), "larder-exchange");
  const Exchange exchange(shape.exchange, memory.data());
  const std::span<std::byte> region = LinkRegion(memory, shape, index);
  rdma::ShmLink::Format(region, shape.link);
  rdma::ShmLink link(region, shape.link, rdma::LinkSide::kReceive);
  AttentionReport& report = ReportIn(memory, shape, index);
  AttentionSocket socket(plan, index, file, exchange, link, report, waits, kv_files);
  AttentionEnd end(plan, index, exchange,
                   std::make_unique<rdma::ShmLink>(region, shape.link, rdma::LinkSide::kSend),
                   report, waits, std::move(out), std::move(in));
  SocketStatus uncounted;
  if (status == nullptr) status = &uncounted;
  status->state.store(static_cast<uint32_t>(SocketState::kServing), std::memory_order_relaxed);
  const std::shared_ptr<void> watched = watch ? watch(socket) : nullptr;
  try {
    socket.Serve(status);
  } catch (const Error&) {
    const std::string lost = end.FaultText();  // else it is the reason why the socket ended
    end.Stop();
    if (lost.empty()) throw;
    throw Error("attention socket {}: {}{}{}", name, end.wrong() != nullptr ? end.wrong() : "",
                end.wrong() != nullptr ? ": " : "", lost);
  }
}

}  // namespace larder::pipeline::stage
