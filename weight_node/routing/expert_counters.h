// ExpertCounters: how often the routers of a socket choose each expert, how many of a layer's
// experts a step reads, and how often a sequence's next row chooses the same ones. One thread
// counts, after it has sorted the rows; any thread may read, without consistency between the
// numbers. They change no result.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/expert_counts.h"
#include "model/config/config.h"
#include "model/step/batch_rows.h"
#include "weight_node/routing/routing.h"

namespace larder::weight_node::inline routing {

class ExpertCounters {
 public:
  class Layer {
   public:
    // The rows of a step, or of half of one, and their experts.
    void Count(const model::BatchRows&, const ChosenRows&, const RoutingTable&);

   private:
    friend class ExpertCounters;
    // layer: its number in the model.
    Layer(size_t layer, const model::ExpertSpec&, size_t slots);
    // What a slot's last row chose, and the position behind it.
    struct Last {
      uint32_t next = 0;  // 0: nothing
      uint16_t experts[kMostUsed];
    };
    ExpertCounts Read() const;

    const size_t layer_, used_;
    std::atomic<uint64_t> steps_{0}, active_{0}, followed_{0}, again_{0};
    std::vector<std::atomic<uint64_t>> rows_;  // [expert]
    std::vector<Last> last_;                   // [slot]
  };

  // slots: of the rows that will come; 0 in a copy of the counters of another socket. first_layer:
  // what the number of the config's first layer is in the model.
  ExpertCounters(const model::ModelConfig&, size_t slots, size_t first_layer = 0);
  Layer& of(size_t layer) { return *layers_[layer]; }  // it must have experts
  // Of the layers that have experts, ascending.
  std::vector<ExpertCounts> Read() const;

  // The numbers that are counted, in one defined order, for a copy of them elsewhere, which has the
  // same config.
  size_t numbers() const { return numbers_.size(); }
  uint64_t Number(size_t i) const { return numbers_[i]->load(std::memory_order_relaxed); }
  void SetNumber(size_t i, uint64_t n) { numbers_[i]->store(n, std::memory_order_relaxed); }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;   // [layer]; null: without experts
  std::vector<std::atomic<uint64_t>*> numbers_;  // those of the layers
};

}  // namespace larder::weight_node::routing
