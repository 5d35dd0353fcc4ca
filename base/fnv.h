// FNV-1a, 64 bits: tells different things apart. No protection against someone who looks for two
// things with one hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace larder {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;

// Continues a hash: what `hash` was computed from, followed by these bytes.
constexpr uint64_t Fnv1a(std::string_view bytes, uint64_t hash = kFnvStart) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}
static_assert(Fnv1a("a") == 0xaf63dc4c8601ec8cu && Fnv1a("b", Fnv1a("a")) == Fnv1a("ab"));

}  // namespace larder
