// Loops that only read memory, as fast as the machine can; the bandwidth probes time them. They use
// plain loads of the widest vectors that the CPU has, in several access patterns, since no single
// pattern is the fastest everywhere (one stream reaches 33 of 56 GB/s from DRAM on two Zen 4
// cores).
#pragma once

#include <cstddef>
#include <span>

namespace larder::topology {

struct ReadPattern {
  const char* name;  // "4 streams, prefetch 1 KB"
  // Loads every whole cache line of [data, data + bytes) once. data is aligned to a cache line.
  void (*read)(const std::byte* data, size_t bytes);
};

// The patterns for this CPU; never empty.
std::span<const ReadPattern> ReadPatterns();

// Writes back and drops every line of the region from all caches. Returns false if this CPU cannot.
bool FlushFromCaches(const std::byte* data, size_t bytes);

}  // namespace larder::topology
