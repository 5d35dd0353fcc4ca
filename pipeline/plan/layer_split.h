// The division of layers among stages: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace larder::pipeline::inline plan {

// How long a stage takes with layers [first, first + count), or how full it is: any unit.
using StageCost = std::function<uint64_t(size_t stage, size_t first, size_t count)>;

// The number of layers of each stage, at least one, `layers` in all, such that the most expensive
// stage is as cheap as any division can make it; of those divisions, the one with the smallest sum
// of squares, so that the others are even; of equal ones, the one with more layers in front. The
// last `together` layers are of one stage (ModelConfig::layers_together). Throws Error if there are
// too few layers for the stages.
std::vector<size_t> SplitLayers(size_t layers, size_t stages, size_t together,
                                const StageCost& cost);
// The same where all stages are equal, and all layers.
std::vector<size_t> SplitEvenly(size_t layers, size_t stages, size_t together);

// The number of sockets of one budget that hold the layers, and the most layers on one of them
// (Cache-Resident LLM Inference table 1): a socket takes as many whole layers as fit, at least one;
// then the layers are spread evenly over that many sockets.
struct SocketCount {
  size_t sockets = 0;
  size_t layers_per_socket = 0;  // on the fullest one
};
SocketCount CountSockets(size_t layers, uint64_t layer_bytes, uint64_t budget_bytes);

}  // namespace larder::pipeline::plan
