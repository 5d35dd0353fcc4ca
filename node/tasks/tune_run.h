// What `larder tune` does: searches schedules for the matrix products that one thread computes, and
// a tuning for its attention.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kernels/formats/isa.h"
#include "kernels/formats/tuning.h"
#include "kernels/tune/attention_search.h"
#include "kernels/tune/schedule_search.h"
#include "model/config/config.h"

namespace larder::node::inline tasks {

// What to tune: a product for each format and number of inputs, with the panels that one of
// `threads` threads has, and attention for each kind of head.
struct TuneWork {
  struct Heads {
    size_t head_size = 0, group = 0;  // elements; query heads per KV head
    size_t count = 0;                 // KV heads of all layers that one thread attends to
  };
  std::vector<kernels::ProductSize> products;
  size_t weight_bytes = 0;  // weights of one thread, up to KernelTuning::kMostTunedBytes
  std::vector<Heads> heads;
};
TuneWork WorkOf(const model::ModelConfig&, size_t threads);
// Work of no particular model: Q8_0, common widths and heads, and more weights than any cache
// holds.
TuneWork UsualWork();

struct TuneResult {
  // In the order of TuneWork's products.
  std::vector<kernels::SearchResult> products;
  std::vector<kernels::AttentionResult> heads;
};

// Pins this thread to `cpu` and searches for `seconds` in all. report(done, all) counts products
// and kinds of heads.
TuneResult Tune(kernels::Isa, const TuneWork&, double seconds, CpuId cpu, NumaNodeId node,
                const std::function<void(size_t, size_t)>& report);

// One table for each: what was found, and by how much it is faster than without tuning.
std::string TuneText(const TuneWork&, const TuneResult&);

}  // namespace larder::node::tasks
