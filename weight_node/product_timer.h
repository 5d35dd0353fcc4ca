// ProductTimer: times matrix products as a thread of a weight socket runs them, for the search for
// schedules. The panels lie in an arena and are large enough together to be read from the same
// cache (or memory) as the model's weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/act_block.h"
#include "kernels/tune/schedule_search.h"
#include "kernels/tune/scheduled_gemms.h"
#include "topology/arena.h"

namespace larder::weight_node {

class ProductTimer final : public kernels::RoundTimer {
 public:
  // A round is one product with n_panels panels; the next round takes the next of several such
  // shards, which have weight_bytes together. `node`: that of the thread that will measure.
  ProductTimer(kernels::Isa, const kernels::ProductSize&, size_t weight_bytes, NumaNodeId node);

  // Generates and checks the tile's code before its first round. Small products are repeated within
  // a round; the result is the time of one.
  double Round(const kernels::Schedule&, size_t rows) override;

 private:
  const kernels::ProductSize size_;
  kernels::ScheduledGemms gemms_;
  const size_t shards_;
  topology::Arena arena_;
  uint8_t* panels_;
  kernels::ActBlock* x_;
  float* y_;
  size_t next_shard_ = 0;
};

}  // namespace larder::weight_node
