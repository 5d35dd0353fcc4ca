#include "pipeline/stage/ends.h"

#include "base/check.h"

namespace larder::pipeline::inline stage {

using threadpool::Step;
using weight_node::Phase;

Ends::Ends(const StagePlan& plan, const model::GgufFile& file, const StageOptions& options)
    : packed_(plan, options) {
  LARDER_CHECK(plan.config.ends && plan.config.layers == 0 && !plan.separated());
  packed_.Load(file, options, nullptr);
  weight_node::WeightNode& weights = packed_.weights();
  const size_t threads = plan.threads.size();
  embed_ = ThreadPrograms(threads, [&](size_t t) {
    std::vector<Step> steps;
    weights.AddEmbed(t, steps);
    weights.AddSend(t, Phase::kDecode, false, steps);
    return steps;
  });
  for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
    head_[static_cast<size_t>(phase)] = ThreadPrograms(threads, [&](size_t t) {
      std::vector<Step> steps;
      weights.AddReceive(t, steps);
      weights.AddHead(t, phase, steps);
      return steps;
    });
  }
  packed_.MeasureResidency(options);
}

}  // namespace larder::pipeline::stage
