#include "pipeline/simulation/stations.h"

#include <algorithm>

namespace larder::pipeline::inline simulation {

uint64_t Stations::Station::Take(uint64_t at_ns, uint64_t takes_ns) {
  free_ns = std::max(at_ns, free_ns) + takes_ns;
  busy_ns += takes_ns;
  return free_ns;
}

uint64_t Stations::Send(size_t link, size_t rows, uint64_t at_ns) {
  const ServiceTimes::Link of = times_.LinkOf(rows);
  return links_[link].Take(at_ns, of.busy_ns) + of.latency_ns;
}

uint64_t Stations::Pass(const StepLoad& load, uint64_t now_ns) {
  uint64_t at_ns = now_ns;
  for (size_t i = 0; i < stages_.size(); ++i)
    at_ns = stages_[i].Take(Send(i, load.rows, at_ns), times_.StageNs(i, load));
  // The last stage sends only what logits are made from.
  return Send(stages_.size(), load.wanted, at_ns);
}

uint64_t Stations::Serve(const StepLoad& load, uint64_t now_ns) {
  const uint64_t takes_ns = times_.ServingNs(load);
  uint64_t at_ns = now_ns;
  if (times_.serves_beside()) {
    at_ns = std::max(at_ns, stages_[0].free_ns);
    stages_[0].free_ns = at_ns + takes_ns;
  }
  return serving_.Take(at_ns, takes_ns);
}

}  // namespace larder::pipeline::simulation
