// What a SimulatedEngine is made of for a Plan: the limits and KV chunks that the Plan's engine
// would have, and the times that the Plan predicts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pipeline/engine/token_engine.h"
#include "pipeline/kv/kv_chunks.h"
#include "pipeline/plan/plan.h"
#include "pipeline/simulation/stations.h"

namespace larder::pipeline::inline simulation {

struct SimulatedPlan {
  EngineLimits limits;
  KvChunksShape chunks;
};
SimulatedPlan SimulatedOf(const Plan& plan);

// The times of the Plan's prediction, for the rows of each micro-batch and as many positions as
// they attend to. A stage takes as long as the attention socket that has most to do for its cores.
class PlanTimes final : public ServiceTimes {
 public:
  explicit PlanTimes(const Plan& plan);
  size_t stages() const override { return stages_.size(); }
  uint64_t StageNs(size_t stage, const StepLoad& load) override;
  Link LinkOf(size_t rows) override;
  uint64_t ServingNs(const StepLoad& load) override;
  bool serves_beside() const override { return prediction_.serves_beside; }

 private:
  struct Stage {
    PredictedStage whole;               // at full context
    std::vector<double> socket_shares;  // [attention socket]: of the stage's cores for KV; empty:
                                        // colocated, all of them have every sequence
  };
  const Prediction prediction_;
  std::vector<Stage> stages_;
};

}  // namespace larder::pipeline::simulation
