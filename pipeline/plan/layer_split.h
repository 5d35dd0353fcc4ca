// Which stage computes which layers: a pure function of the stages' L3 budgets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace larder::pipeline {

// Layers of each stage, at least one, `layers` in all, in proportion to the weights (L3 budgets in bytes, or
// cores where a budget is not known): each further layer goes to the stage that is the least full with it,
// the first of several, which keeps the fullest stage as empty as any division can (paper section 5: even,
// for sockets alike). Error if there are fewer layers than stages.
std::vector<size_t> ShareLayers(size_t layers, std::span<const uint64_t> weights);

// How many sockets of such a budget hold the layers, and with how many each at most (paper table 1): as many
// whole layers as fit, at least one, then evenly over that many sockets.
struct SocketCount {
  size_t sockets = 0;
  size_t layers_per_socket = 0;  // of the fullest one
};
SocketCount CountSockets(size_t layers, uint64_t layer_bytes, uint64_t budget_bytes);

}  // namespace larder::pipeline
