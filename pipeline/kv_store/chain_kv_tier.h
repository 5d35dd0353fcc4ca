// ChainKvTier: KV chunks in the files of the sockets that hold them (pipeline/kv_store/kv_part.h).
// The serving socket keeps the index: a file for each piece, found by its tokens as in KvFiles,
// with the ticket under which the sockets have the piece's parts. A piece counts as stored when all
// its parts are stored, and after them the ticket; as loaded when all parts are loaded. If one part
// is lost, the ticket is removed and the tokens are computed.
//
// Orders go with micro-batches or, if there are none, in frames of their own (KvChannel::Poll). So
// a socket begins them after it has computed all that was sent before, and nothing that it still
// reads or writes is moved.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pipeline/kv/kv_channel.h"
#include "pipeline/kv/kv_order.h"
#include "pipeline/kv/kv_order_book.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_tier.h"

namespace larder::pipeline::inline kv_store {

class ChainKvTier final : public KvTier {
 public:
  // channel: must have orders(). index: files of tickets (chunk_bytes). tickets: moves these files
  // (KvMover), and nothing else uses them. on_problem: gets a line for people, on any thread. All
  // must outlive it.
  ChainKvTier(KvChannel& channel, const KvFiles& index, std::unique_ptr<KvTier> tickets,
              std::function<void(const std::string&)> on_problem);
  ~ChainKvTier() override;

  size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const override {
    return index_.Find(tokens, tenant);
  }
  void FindPieces(KvJob& job) const override { index_.FindPieces(job); }
  size_t chunk_positions() const override { return index_.options().chunk_positions; }
  const KvFilesStatus& status() const override { return status_; }
  void Start(KvJob job) override;
  std::optional<KvJob> Take() override;
  std::optional<KvJob> Drop() override;
  void Wait(int ms) override;
  bool needs_steps() const override { return jobs() > 0; }
  void Watch() override;
  void Abandon() override;

 private:
  struct Moving {
    enum class Phase { kReadsTickets, kOrders, kWritesTickets, kForgetsTickets };
    int32_t id = 0;
    Phase phase = Phase::kReadsTickets;
    KvJob job;
    std::vector<KvTicket> tickets;  // [piece]
    std::vector<size_t> with;       // pieces whose tickets are being moved
    std::vector<size_t> to_order;   // pieces that are to be ordered, from the end
    struct Ordered {
      size_t piece;
      uint32_t place;
    };
    std::vector<Ordered> ordered;  // ordered and not ended
    std::vector<uint8_t> moved;    // [piece]: at both places
    int64_t since_ns = 0;          // when the last order ended, or the first began
  };
  void Advance();
  void TakeTickets();
  void BeginStore();
  // Returns whether all orders of the job have ended.
  bool Order(Moving& moving);
  // Does what follows then. Returns whether the job is done.
  bool AfterOrders(Moving& moving);
  void MoveTickets(Moving& moving, KvJob::Kind kind, std::vector<size_t> pieces);
  void BeginOrders(Moving& moving, size_t known);
  void Forget(Moving& moving, size_t first);
  void Finish(Moving& moving);
  void ShowFiles();

  KvChannel& channel_;
  KvOrderBook& book_;
  const KvFiles& index_;
  const std::function<void(const std::string&)> on_problem_;
  std::random_device random_;
  KvFilesStatus status_;
  int32_t last_id_ = 0;
  std::deque<KvJob> stores_;  // stores that have not begun
  std::list<Moving> moving_;
  std::deque<KvJob> done_;
  bool failing_ = false;  // the last store failed
  // Moves tickets; the memory of its jobs is in moving_.
  const std::unique_ptr<KvTier> tickets_;
};

}  // namespace larder::pipeline::kv_store
