// KvOrderBook: the serving socket's orders for the files of the sockets that hold the KV
// (pipeline/kv/kv_order.h), and their state. Code that wants chunks moved adds orders; the chain
// sends them with its next frame and notes what the sockets report. One thread.
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
  // chunk_ends: where the chunks of each attention socket end; one end if all stages are colocated.
  explicit KvOrderBook(std::vector<size_t> chunk_ends);

  enum class State : uint8_t { kFree, kWaiting, kSent, kDone, kFailed };
  // Adds an order and returns its place; nullopt: all places are taken.
  std::optional<uint32_t> Add(KvOrder::Kind kind, const KvTicket& ticket, uint32_t chunk);
  State state(uint32_t place) const { return places_[place].state; }
  // Frees the place of an order that has ended.
  void Free(uint32_t place) { places_[place].state = State::kFree; }
  size_t taken() const;
  bool waits() const { return waiting_ > 0; }  // some order has not been sent

  // Copies the waiting orders to `to`, which has room for all, to be sent with the frame of this
  // step. Returns their number. The reports that come back with this frame or later ones are about
  // them.
  size_t Send(uint64_t step, KvOrder* to);
  // Notes a frame's reports about the parts of an attention socket's chunks, one per stage.
  void See(uint64_t step, AttentionId socket, std::span<const KvReport> of_stages);
  void Clear();  // call it when the chain is lost: every place becomes free

  // The files of all sockets, as last reported.
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
  // How many places are kWaiting and kSent. Usually none, and then no place is looked at.
  size_t waiting_ = 0, sent_ = 0;
  std::vector<KvReport> all_;  // [socket]: the sum of its parts' reports
};

}  // namespace larder::pipeline::kv
