#include "pipeline/kv/kv_order_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace larder::pipeline::inline kv {

KvOrderBook::KvOrderBook(std::vector<size_t> chunk_ends)
    : chunk_ends_(std::move(chunk_ends)), all_(chunk_ends_.size()) {}

AttentionId KvOrderBook::SocketOf(uint32_t chunk) const {
  const auto end = std::upper_bound(chunk_ends_.begin(), chunk_ends_.end(), size_t{chunk});
  return AttentionId(static_cast<int32_t>(end - chunk_ends_.begin()));
}

std::optional<uint32_t> KvOrderBook::Add(KvOrder::Kind kind, const KvTicket& ticket,
                                         uint32_t chunk) {
  LARDER_CHECK(chunk < chunk_ends_.back());
  for (uint32_t i = 0; i < places_.size(); ++i) {
    if (places_[i].state != State::kFree) continue;
    places_[i].state = State::kWaiting;
    ++waiting_;
    places_[i].order = {.ticket = ticket, .kind = kind, .place = i, .chunk = chunk};
    return i;
  }
  return std::nullopt;
}

size_t KvOrderBook::taken() const {
  return static_cast<size_t>(
      std::ranges::count_if(places_, [](const Place& of) { return of.state != State::kFree; }));
}

size_t KvOrderBook::Send(uint64_t step, KvOrder* to) {
  size_t sent = 0;
  for (Place& place : places_) {
    if (place.state != State::kWaiting) continue;
    place.state = State::kSent;
    place.step = step;
    to[sent++] = place.order;
  }
  waiting_ -= sent;
  sent_ += sent;
  return sent;
}

void KvOrderBook::See(uint64_t step, AttentionId socket, std::span<const KvReport> of_stages) {
  KvReport& all = all_[socket.index()];
  all = {.done = ~uint64_t{0}};
  for (const KvReport& one : of_stages) {
    all.done &= one.done;
    all.failed |= one.failed;
    all.files += one.files;
    all.bytes += one.bytes;
  }
  for (uint32_t i = 0; i < places_.size() && sent_ > 0; ++i) {
    Place& place = places_[i];
    // A frame that went before the order says nothing about it.
    if (place.state != State::kSent || place.step > step || SocketOf(place.order.chunk) != socket)
      continue;
    if ((all.done >> i & 1) == 0) continue;
    --sent_;
    place.state = (all.failed >> i & 1) != 0 ? State::kFailed : State::kDone;
  }
}

void KvOrderBook::Clear() {
  for (Place& place : places_) place.state = State::kFree;
  waiting_ = sent_ = 0;
}

uint64_t KvOrderBook::Sum(uint64_t KvReport::*number) const {
  uint64_t sum = 0;
  for (const KvReport& one : all_) sum += one.*number;
  return sum;
}

}  // namespace larder::pipeline::kv
