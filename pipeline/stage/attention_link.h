// AttentionLink: connects a weight socket with an attention socket on another server. Each of the
// two has an Exchange of its own, as if the other were a process of its server, and executes the
// same Programs. A thread at either end stands in for the other socket: it waits for the flags that
// the other socket waits for, sends the rows that they announce, and signals those of what it has
// received. Both walk through a micro-batch in the order of the weight socket's Programs, so a
// frame can only be of what comes next.
//
//   weight threads -> projected(t, head) -> [thread of WeightEnd] == head by head ==>
//       [thread of AttentionEnd] -> projected(t, head) -> attention threads
//   attention threads -> attended(group) -> [thread of AttentionEnd] == rows ==>
//       [thread of WeightEnd] -> attended(a, group) -> weight threads
//
// A head goes as soon as it is projected; those that are ready together and follow each other go
// together. What comes back is whole: O needs all heads. Rows are float32, as in the exchange, so
// no bit depends on who has which server.
//
// The other end is not trusted: each frame's header is copied once and checked against what may
// come next; rows are any bits, none of which is an index. Frames lie in rings that both ends have
// allocated (verbs: registered) before the first micro-batch.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/socket_counters.h"
#include "pipeline/kv/kv_order.h"
#include "pipeline/plan/socket_waits.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/exchange.h"
#include "rdma/link/frame_link.h"
#include "rdma/shm/shm_link.h"
#include "sync/wait.h"

namespace larder::pipeline::inline stage {

// Where the two ends of an attention socket's links listen.
struct AttentionEndpoints {
  rdma::LinkEndpoint there;  // the attention socket
  rdma::LinkEndpoint back;   // its weight socket, for what comes back
};

// Those of all attention sockets of a stage; nullopt: one of the weight socket's server.
struct AttentionLinks {
  rdma::LinkIdentity identity;  // of the process that has them
  std::vector<std::optional<AttentionEndpoints>> of;
};

// What a frame of these links begins with. A FrameMessage, an Answer or rows of floats follow.
struct LinkFrame {
  // kMessage: a FrameMessage. kHeads: rows of q, k and v of heads. kAttended: rows of attention's
  // output. kAnswer: an Answer to any other message. kReport: an Answer once in a micro-batch,
  // before the last rows.
  enum class Kind : uint32_t { kMessage = 1, kHeads = 2, kAttended = 3, kReport = 4, kAnswer = 5 };
  Kind kind;
  uint32_t layer, half;        // kHeads, kAttended
  uint32_t first_row, rows;    // the same; rows of the half
  uint32_t first_head, heads;  // kHeads
  uint32_t reserved;
  struct Answer {
    KvReport kv;
    SocketCounters counters;
  };
};
static_assert(sizeof(LinkFrame) == 32 && std::is_trivially_copyable_v<LinkFrame::Answer>);

// The sizes of both links.
rdma::LinkShape AttentionLinkShape(const StagePlan&, const rdma::LinkShape& messages);

// What both ends have.
class AttentionLink {
 public:
  AttentionLink(const AttentionLink&) = delete;
  AttentionLink& operator=(const AttentionLink&) = delete;

  // Of the first link that has one; empty: none.
  std::string FaultText() const;
  sync::Fault fault() const;
  // What was wrong with what the other end sent; null: nothing. After the thread has ended.
  const char* wrong() const { return wrong_; }

 protected:
  // A part of the rows of a micro-batch, in the exchange.
  struct Rows {
    uint32_t first, count;
  };
  AttentionLink(const StagePlan&, AttentionId, const Exchange&, AttentionReport&,
                const sync::WaitPolicy& own, size_t message_bytes, rdma::FrameLink out,
                rdma::FrameLink in);
  ~AttentionLink();

  // Calls project(layer, half) and attend(layer, half) in the order of the weight socket's
  // Programs, while they return true. Data path, as all that follow.
  template <typename Project, typename Attend>
  bool Walk(Project project, Attend attend);
  Rows RowsOf(size_t layer, size_t half) const;
  size_t Heads(size_t layer) const;
  // The columns of heads [first, first + count) in the rows of a layer.
  Range<size_t> Columns(size_t layer, size_t first, size_t count) const;
  uint32_t Epoch(size_t layer) const {
    return message_.base_epoch + static_cast<uint32_t>(layer) + 1;
  }
  std::span<sync::EpochFlag* const> Projected(size_t layer, size_t half, size_t head) const;
  std::span<sync::EpochFlag* const> Attended(size_t half) const { return attended_[half]; }
  void SignalProjected(size_t layer, size_t half, size_t head, sync::WaitPolicy::Mode waiters);
  void SignalAttended(size_t layer, size_t half, sync::WaitPolicy::Mode waiters);

  // Sends rows of a matrix in as many frames as they need. False: the link has a fault.
  bool SendRows(LinkFrame frame, const weight_node::FloatRows& from, Range<size_t> columns,
                Rows rows);
  bool Send(const LinkFrame& frame, const void* bytes, size_t size_bytes);
  // The next frame: its header, copied, and what follows it, until EndReceive. Null: a fault.
  const std::byte* Receive(LinkFrame* frame, size_t* size_bytes);
  // Copies a frame's rows into the exchange; false if they are not those of these columns.
  bool Take(const LinkFrame& frame, const std::byte* bytes, size_t size_bytes,
            const weight_node::FloatRows& to, Range<size_t> columns, Rows rows);
  bool Wrong(const char* what);
  // Keeps a message; false if it cannot be one.
  bool Keep(const std::byte* message, size_t size_bytes);

  const StagePlan& plan_;
  const AttentionId index_;
  const Exchange& exchange_;
  AttentionReport& report_;
  const sync::WaitPolicy wait_;
  const size_t message_bytes_, payload_bytes_;
  rdma::FrameLink out_, in_;
  FrameMessage message_{};  // the current one, without its rows
  FlagRefresh refresh_;
  const char* wrong_ = nullptr;
  size_t last_attending_ = 0;                        // layer
  std::vector<std::vector<Range<size_t>>> columns_;  // [kind of layer][head]
  // [half][kind of layer][head]
  std::array<std::vector<std::vector<std::vector<sync::EpochFlag*>>>, kHalves> projected_;
  std::array<std::vector<sync::EpochFlag*>, kHalves> attended_;
  std::vector<uint32_t> done_;  // [head]: rows of it that were sent or have come
};

// The weight socket's end, which stands in for the attention socket.
class WeightEnd : public AttentionLink {
 public:
  // messages: those to the socket. lost: called at most once, on a thread of this object's, when a
  // link has a fault; it must not destroy the object.
  WeightEnd(const StagePlan&, AttentionId, const Exchange&, std::unique_ptr<rdma::ShmLink> messages,
            AttentionReport&, const SocketWaits&, rdma::FrameLink out, rdma::FrameLink in,
            std::function<void(const AttentionLink&)> lost);
  // Joins the thread, which ends with a stop message or a fault.
  ~WeightEnd();
  // A fault is no loss from now on: the socket is about to be told to stop.
  void ExpectEnd();

 private:
  void Run();
  bool Project(size_t layer, size_t half);
  bool Attend(size_t layer, size_t half);
  bool TakeAnswer(LinkFrame::Kind kind);
  void Watch(const std::function<void(const AttentionLink&)>& lost);

  const sync::WaitPolicy::Mode weight_mode_;
  std::unique_ptr<rdma::ShmLink> messages_;
  bool reported_ = true;  // the last micro-batch's report has come
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_, watch_;  // last: they use the other members
};

// The attention socket's end, which stands in for the weight socket.
class AttentionEnd : public AttentionLink {
 public:
  AttentionEnd(const StagePlan&, AttentionId, const Exchange&,
               std::unique_ptr<rdma::ShmLink> messages, AttentionReport&, const SocketWaits&,
               rdma::FrameLink out, rdma::FrameLink in);
  // Joins the thread. The socket executes no frame any more.
  ~AttentionEnd();
  // For a socket that has ended: the thread, which may wait for it, ends, too.
  void Stop();

 private:
  void Run();
  bool TakeMessage();
  bool Project(size_t layer, size_t half);
  bool Attend(size_t layer, size_t half);
  bool SendAnswer(LinkFrame::Kind kind);
  void Release();

  const sync::WaitPolicy::Mode attention_mode_;
  std::unique_ptr<rdma::ShmLink> messages_;
  // seq_cst: either Stop() sees the thread's epoch, or the thread sees that it is to stop.
  std::atomic<uint32_t> last_epoch_{0};  // that the current message's flags reach
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace larder::pipeline::stage
