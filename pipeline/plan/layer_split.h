// The division of layers among stages: pure functions of the stages' L3 budgets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace larder::pipeline::inline plan {

// The number of layers of each stage, at least one, `layers` in all, in proportion to `weights` (L3
// budgets in bytes, or cores where a budget is not known). Each further layer goes to the stage
// that is the least full with it, the first of equals, so the fullest stage is as empty as any
// division can make it (Cache-Resident LLM Inference section 5: evenly, for equal sockets). The
// last `together` layers are of one stage (ModelConfig::layers_together). Throws Error if there are
// too few layers for the stages.
std::vector<size_t> ShareLayers(size_t layers, std::span<const uint64_t> weights,
                                size_t together = 1);

// The number of sockets of one budget that hold the layers, and the most layers on one of them
// (Cache-Resident LLM Inference table 1): a socket takes as many whole layers as fit, at least one;
// then the layers are spread evenly over that many sockets.
struct SocketCount {
  size_t sockets = 0;
  size_t layers_per_socket = 0;  // on the fullest one
};
SocketCount CountSockets(size_t layers, uint64_t layer_bytes, uint64_t budget_bytes);

}  // namespace larder::pipeline::plan
