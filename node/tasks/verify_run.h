// `larder verify`: the promise of equal bits, on the user's machine and model. One sequence is run
// in every mode that this process has, and the logits of its last positions are compared bit by
// bit: each position's depend on the keys and values of all before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/formats/isa.h"
#include "model/gguf/gguf.h"
#include "topology/topology.h"

namespace larder::node::inline tasks {

struct VerifySpec {
  std::shared_ptr<const model::GgufFile> file;
  const topology::Topology& machine;
  kernels::Isa isa;     // used by all modes except those of other instruction sets
  size_t threads;       // used by most modes
  size_t positions;     // at least kVerified
  bool scalar = false;  // with the scalar reference, too: minutes for a model of 500 MB
};
inline constexpr size_t kVerified = 32;  // the last positions

struct VerifiedMode {
  std::string name;
  uint64_t hash;            // hash of the logits of the last kVerified positions
  int64_t differs_at = -1;  // the first position whose bits are not the first mode's; -1: none
};

// Runs the modes one after the other, and passes each to `report` when it is done. Stops after the
// current mode if interrupted. Throws Error if a mode cannot be run.
std::vector<VerifiedMode> VerifyBits(const VerifySpec& spec,
                                     const std::function<void(const VerifiedMode&)>& report);

}  // namespace larder::node::tasks
