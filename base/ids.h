// Typed ids: plain integers whose types keep a core from being taken for an L3 group. They have no
// arithmetic but ++, for loops over all of a kind.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace larder {

template <typename Tag>
struct Id {
  int32_t value = -1;
  constexpr Id() = default;
  constexpr explicit Id(int32_t v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  // The index into an array that has an element per id. That of an invalid id is beyond any array's
  // end, so one comparison with the size checks both bounds.
  constexpr size_t index() const { return static_cast<size_t>(value); }
  constexpr Id& operator++() {
    ++value;
    return *this;
  }
  constexpr auto operator<=>(const Id&) const = default;
};

using CoreId = Id<struct CoreTag>;            // index of a physical core in the Topology snapshot
using CpuId = Id<struct CpuTag>;              // the operating system's number of a logical CPU (PU)
using L3GroupId = Id<struct L3GroupTag>;      // index of a set of cores that share one L3
using NumaNodeId = Id<struct NumaNodeTag>;    // the operating system's number of a NUMA node
using SlotId = Id<struct SlotTag>;            // a sequence's place in the KV cache
using AttentionId = Id<struct AttentionTag>;  // index of an attention socket among those of its
                                              // stage

// An array of ids can be sent and shared as one of int32_t.
static_assert(sizeof(SlotId) == sizeof(int32_t));
static_assert(alignof(SlotId) == alignof(int32_t));
static_assert(std::is_standard_layout_v<SlotId> && std::is_trivially_copyable_v<SlotId>);

}  // namespace larder
