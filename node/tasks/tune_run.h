// What `larder tune` does: searches schedules for the matrix products that one thread computes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kernels/formats/isa.h"
#include "kernels/formats/tuning.h"
#include "kernels/tune/schedule_search.h"
#include "model/config/config.h"

namespace larder::node::inline tasks {

// The products to tune: one for each format and number of inputs, with the panels that one of
// `threads` threads has.
struct TuneWork {
  std::vector<kernels::ProductSize> products;
  size_t weight_bytes = 0;  // of one thread, up to KernelTuning::kMostTunedBytes
};
TuneWork WorkOf(const model::ModelConfig&, size_t threads);
// For no particular model: Q8_0, widths that models have, and weights beyond any cache.
TuneWork UsualWork();

struct Tuned {
  kernels::ProductSize product;
  kernels::SearchResult result;
};

// Pins this thread to `cpu` and searches for `seconds` in all. report(done, all) counts products.
std::vector<Tuned> Tune(kernels::Isa, const TuneWork&, double seconds, CpuId cpu, NumaNodeId node,
                        const std::function<void(size_t, size_t)>& report);

// One table for each product: the schedules found, and by how much they beat those without tuning.
std::string TuneText(const std::vector<Tuned>&, size_t weight_bytes);

}  // namespace larder::node::tasks
