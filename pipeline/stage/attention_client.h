// AttentionClient: the weight socket's side of its attention sockets: the memory in which they
// exchange rows, a link to each for frame messages, and their threads (in one process), the control
// channels to their processes (`larder node`), or the links to their servers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/attention_link.h"
#include "pipeline/stage/attention_socket.h"
#include "pipeline/stage/exchange.h"
#include "rdma/common/shared_memory.h"
#include "rdma/control/control_channel.h"
#include "rdma/control/peer_monitor.h"
#include "rdma/shm/shm_link.h"

namespace larder::pipeline::inline stage {

// One segment holds the exchange and, behind it, one link and one report per socket.
struct SegmentShape {
  explicit SegmentShape(const StagePlan& plan);
  ExchangeShape exchange;
  rdma::LinkShape link;
  size_t link_offset(AttentionId socket) const;
  size_t report_offset(AttentionId socket) const;
  size_t bytes() const;
  AttentionId end() const { return AttentionId(static_cast<int32_t>(sockets)); }
  size_t sockets;
};

// The name under which the process of an attention socket listens (abstract Unix socket): the same
// in both processes.
std::string ControlName(const std::string& cluster, const std::string& socket);

class AttentionClient {
 public:
  // Starts a thread of this process per socket, which builds the socket's pool and serves. Throws
  // what a socket's constructor throws.
  static std::unique_ptr<AttentionClient> StartThreads(const StagePlan&, const model::GgufFile&,
                                                       const SocketWaits&,
                                                       const KvPartOptions& kv_files);
  // Connects to processes that run `larder node` already, or will within timeout_ms. Throws Error
  // if one of them disagrees with `waits` about how either side's threads wait. From then on the
  // loss of one ends this process with a message. socket: this socket's name. key: the cluster's;
  // null: none. links: those to sockets of other servers.
  static std::unique_ptr<AttentionClient> Connect(
      const StagePlan&, const std::string& cluster, const std::string& socket, const SocketWaits&,
      int timeout_ms, const std::shared_ptr<const rdma::LinkKey>& key = {},
      const AttentionLinks& links = {});
  ~AttentionClient();  // stops the sockets; joins their threads, or says goodbye to their processes

  const Exchange& exchange() const { return *exchange_; }
  // The counters of a socket. Any thread.
  const SocketStatus& status(AttentionId socket) const { return report(socket).status; }

  // For a micro-batch that does not end: the attention socket that all others wait for, if it is
  // one. Any thread.
  std::optional<AttentionId> Hung() const;

  // The KV cache of a socket; null: it is in another process.
  const attention_node::KvRegion* kv(AttentionId socket) const {
    return served_.empty() ? nullptr : &served_[socket.index()]->kv();
  }

  // Sends each socket a frame with the list of its rows of the micro-batch. In each half
  // (first_half rows, then the others; 0: not cut) the rows are in the order of sockets.
  // base_epoch: the weight pool's for this micro-batch. Data path.
  void Send(const model::BatchRows& frame, uint32_t first_half, uint32_t base_epoch);
  // Between two frames: gives each socket the orders for its chunks, and returns when all have
  // taken their orders and reported.
  void Order(std::span<const KvOrder> orders);
  void AbandonOrders();
  KvReport kv_report(AttentionId socket) const;

 private:
  friend struct StageTesting;
  AttentionClient(const StagePlan&, const SocketWaits&);
  AttentionReport& report(AttentionId socket) const;
  void ConnectServer(AttentionId socket, const AttentionEndpoints&, rdma::LinkIdentity,
                     const SocketWaits&, int timeout_ms);
  void Ping(AttentionId socket);
  // Sends a message and waits for its answer.
  void Call(AttentionId socket, FrameMessage::Kind kind, std::span<const KvOrder> orders = {});
  [[noreturn]] void LinkFailed(AttentionId socket) const;
  FrameMessage& BeginMessage(AttentionId socket, FrameMessage::Kind kind, uint32_t base_epoch);

  const StagePlan& plan_;
  const sync::WaitPolicy wait_;
  SegmentShape shape_;
  uint32_t frames_ = 0, pings_ = 0;
  // State of the current micro-batch, for Hung(); relaxed. Written once a micro-batch and read once
  // a second by the watch: sharing their line costs nothing.
  std::atomic<uint32_t> base_epoch_{0}, halves_{1};
  std::atomic<AttentionId> pinged_{};  // the socket whose answer is awaited
  rdma::SharedMemory memory_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<rdma::ShmLink>> senders_;
  std::vector<std::unique_ptr<rdma::ShmLink>> receivers_;  // threads only
  std::vector<std::thread> threads_;
  std::vector<AttentionSocket*> served_;  // the threads' sockets
  // Processes only, [socket]; null: the socket is on another server.
  std::vector<std::unique_ptr<rdma::ControlChannel>> channels_;
  std::vector<std::unique_ptr<rdma::PeerMonitor>> monitors_;
  std::vector<std::unique_ptr<WeightEnd>> ends_;  // those of other servers
};

// Builds the socket's pool, kernels and KV region as ServeAttentionProcess will, and frees them, so
// that a missing resource is an Error before a peer has connected.
void DryRunAttention(const StagePlan& plan, AttentionId index, const model::GgufFile& file,
                     const SocketWaits& waits, const KvPartOptions& kv_files);

// The main thread of an attention socket's process: waits for a weight socket and serves it until
// it says goodbye. Called in a loop. status: counts the frames over all calls; may be null. watch:
// called with the socket before it serves; what it returns is destroyed before the socket.
using WatchAttention = std::function<std::shared_ptr<void>(const AttentionSocket&)>;
void ServeAttentionProcess(const StagePlan& plan, AttentionId index, const model::GgufFile& file,
                           rdma::ControlListener& listener, const SocketWaits& waits,
                           SocketStatus* status = nullptr,
                           const std::shared_ptr<const rdma::LinkKey>& key = {},
                           const WatchAttention& watch = {}, const KvPartOptions& kv_files = {});

// The same for a socket whose weight socket is on another server, which connects to `listener`.
// Throws an Error if a link is lost. log: is told a line about each link, when both are there.
void ServeAttentionServer(const StagePlan& plan, AttentionId index, const model::GgufFile& file,
                          rdma::LinkListener& listener, const AttentionEndpoints& ends,
                          const rdma::LinkIdentity& identity, const SocketWaits& waits,
                          SocketStatus* status = nullptr, const WatchAttention& watch = {},
                          const KvPartOptions& kv_files = {},
                          const std::function<void(const std::string&)>& log = {});

}  // namespace larder::pipeline::stage
