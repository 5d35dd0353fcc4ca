#include "weight_node/routing/expert_counters.h"

namespace larder::weight_node::inline routing {

ExpertCounters::Layer::Layer(size_t layer, const model::ExpertSpec& experts, size_t slots)
    : layer_(layer), used_(experts.used), rows_(experts.count), last_(slots) {}

ExpertCounts ExpertCounters::Layer::Read() const {
  const auto load = [](const std::atomic<uint64_t>& n) {
    return n.load(std::memory_order_relaxed);
  };
  ExpertCounts counts{.layer = layer_,
                      .used = used_,
                      .steps = load(steps_),
                      .active = load(active_),
                      .followed = load(followed_),
                      .again = load(again_),
                      .rows = {}};
  for (const std::atomic<uint64_t>& rows : rows_) counts.rows.push_back(load(rows));
  return counts;
}

ExpertCounters::ExpertCounters(const model::ModelConfig& config, size_t slots, size_t first_layer)
    : layers_(config.layers) {
  for (size_t i = 0; i < config.layers; ++i) {
    const model::ExpertSpec& experts = config.layer(i).experts;
    if (experts.count == 0) continue;
    layers_[i].reset(new Layer(first_layer + i, experts, slots));
    Layer& layer = *layers_[i];
    numbers_.insert(numbers_.end(),
                    {&layer.steps_, &layer.active_, &layer.followed_, &layer.again_});
    for (std::atomic<uint64_t>& rows : layer.rows_) numbers_.push_back(&rows);
  }
}

std::vector<ExpertCounts> ExpertCounters::Read() const {
  std::vector<ExpertCounts> all;
  for (const auto& layer : layers_) {
    if (layer) all.push_back(layer->Read());
  }
  return all;
}

}  // namespace larder::weight_node::routing
