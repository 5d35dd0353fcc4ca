// Range: consecutive indices. All ranges in the program are half-open; only what people write and
// read (the manifest's `layers`, messages) names the last index.
#pragma once

namespace larder {

// [begin, end)
template <typename T>
struct Range {
  T begin = 0;
  T end = 0;
  constexpr T count() const { return end - begin; }
  constexpr bool contains(T i) const { return begin <= i && i < end; }
};

}  // namespace larder
