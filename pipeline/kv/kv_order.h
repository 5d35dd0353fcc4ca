// KvOrder: has every socket that holds a part of a KV chunk write it to a file of its own, read it
// from there, or keep that file longer than others. Orders come from the serving socket, with
// micro-batches or alone. The serving socket knows what the chunks contain; how orders end is
// reported back the same way (pipeline/kv_store/kv_part.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/range.h"

namespace larder::pipeline::inline kv {

// The name of a chunk's contents: drawn at random when they are stored, never used twice.
using KvTicket = std::array<uint64_t, 2>;

// The most orders that have begun and not ended; each has a place of its own.
inline constexpr uint32_t kKvOrderPlaces = 64;

struct KvOrder {
  enum class Kind : uint32_t { kStore = 1, kLoad = 2, kTouch = 3 };
  KvTicket ticket{};
  Kind kind = Kind::kStore;
  uint32_t place = 0;
  uint32_t chunk = 0;  // a number among the stage's chunks or, in a message to an attention socket,
                       // among that socket's; for kTouch any chunk of the socket
  uint32_t reserved = 0;
  bool operator==(const KvOrder&) const = default;

  // Null, or what is wrong with the order, given the chunks that exist.
  const char* Problem(Range<size_t> chunks) const {
    if (kind < Kind::kStore || kind > Kind::kTouch) return "a KV order of an unknown kind";
    if (place >= kKvOrderPlaces) return "a KV order of a place that does not exist";
    if (!chunks.contains(chunk)) return "a KV order for a chunk that does not exist";
    return nullptr;
  }
};
static_assert(sizeof(KvOrder) == 32 && std::is_trivially_copyable_v<KvOrder>);

// A socket's report about its part. Bit i of the masks belongs to place i: whether its last order
// has ended, and whether that failed. Taking an order clears the bits of its place.
struct KvReport {
  uint64_t done = 0, failed = 0;
  uint64_t files = 0, bytes = 0;  // number and bytes of all files
};
static_assert(sizeof(KvReport) == 32 && kKvOrderPlaces == 64);

}  // namespace larder::pipeline::kv
