// KvOrder: has every socket that holds a part of a KV chunk write it to a file of its own, read it
// from there, or keep that file longer than others. Orders come with micro-batches, or alone, from
// the serving socket, which keeps what the chunks are of; how they end is reported the same way
// back (pipeline/kv_store/kv_part.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/range.h"

namespace larder::pipeline::inline kv {

// Names what is in a chunk: drawn at random when it is stored, never twice.
using KvTicket = std::array<uint64_t, 2>;

// Orders that have begun and not ended, each with a place of its own.
inline constexpr uint32_t kKvOrderPlaces = 64;

struct KvOrder {
  enum class Kind : uint32_t { kStore = 1, kLoad = 2, kTouch = 3 };
  KvTicket ticket{};
  Kind kind = Kind::kStore;
  uint32_t place = 0;
  uint32_t chunk = 0;  // of the stage's or, sent to an attention socket, of its own; of kTouch any
                       // of the socket's
  uint32_t reserved = 0;
  bool operator==(const KvOrder&) const = default;

  // Null, or what is wrong with it where there are these chunks.
  const char* Problem(Range<size_t> chunks) const {
    if (kind < Kind::kStore || kind > Kind::kTouch) return "a KV order of an unknown kind";
    if (place >= kKvOrderPlaces) return "a KV order of a place that does not exist";
    if (!chunks.contains(chunk)) return "a KV order for a chunk that does not exist";
    return nullptr;
  }
};
static_assert(sizeof(KvOrder) == 32 && std::is_trivially_copyable_v<KvOrder>);

// What a socket says of its part. Bit i of a mask is place i's: whether its last order has ended,
// and whether it failed. A place's bits are 0 from when an order is taken.
struct KvReport {
  uint64_t done = 0, failed = 0;
  uint64_t files = 0, bytes = 0;  // of all files
};
static_assert(sizeof(KvReport) == 32 && kKvOrderPlaces == 64);

}  // namespace larder::pipeline::kv
