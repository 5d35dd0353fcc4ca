// KvOrderBook: the serving socket's orders for the files of the sockets that hold the KV
// (pipeline/kv/kv_order.h), and how far they are. Whoever wants something moved adds orders; the
// chain sends them with its next frame and notes what the sockets report. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "pipeline/kv/kv_order.h"

namespace larder::pipeline::inline kv {

class KvOrderBook {
 public:
  // chunk_ends: where the chunks of each attention socket end, of all colocated stages one.
  explicit KvOrderBook(std::vector<size_t> chunk_ends);

  enum class State : uint8_t { kFree, kWaiting, kSent, kDone, kFailed };
  // The order's place; nullopt: all are taken.
  std::optional<uint32_t> Add(KvOrder::Kind kind, const KvTicket& ticket, uint32_t chunk);
  State state(uint32_t place) const { return places_[place].state; }
  void Free(uint32_t place) { places_[place].state = State::kFree; }  // of an order that has ended
  size_t taken() const;
  bool waits() const { return waiting_ > 0; }  // one of them has not been sent

  // Copies what waits to `to`, which has room for all, to be sent with the frame of this step.
  // Returns how many. The sockets' reports in it, and in later frames, count for them.
  size_t Send(uint64_t step, KvOrder* to);
  // What the parts of an attention socket's chunks, one of each stage, say in a frame.
  void See(uint64_t step, AttentionId socket, std::span<const KvReport> of_stages);
  void Clear();  // the chain is lost: every place is free

  // Of the files of all sockets, as they said last.
  uint64_t files() const { return Sum(&KvReport::files); }
  uint64_t bytes() const { return Sum(&KvReport::bytes); }

 private:
  struct Place {
    State state = State::kFree;
    KvOrder order;
    uint64_t step = 0;
  };
  AttentionId SocketOf(uint32_t chunk) const;
  uint64_t Sum(uint64_t KvReport::*number) const;

  const std::vector<size_t> chunk_ends_;
  std::array<Place, kKvOrderPlaces> places_;
  // How many places are kWaiting and kSent: most frames find none, and look at no place.
  size_t waiting_ = 0, sent_ = 0;
  std::vector<KvReport> all_;  // [socket]: the sum of its parts
};

}  // namespace larder::pipeline::kv
