#include "pipeline/stage/ends.h"

#include "base/check.h"

namespace larder::pipeline::inline stage {

using weight_node::ProgramForm;

Ends::Ends(const StagePlan& plan, const model::GgufFile& file, const StageOptions& options)
    : packed_(plan, options) {
  LARDER_CHECK(plan.config.ends && plan.config.layers == 0 && !plan.separated());
  packed_.Load(file, options, nullptr);
  weight_node::WeightNode& weights = packed_.weights();
  const size_t threads = plan.threads.size();
  embed_ = ThreadPrograms(threads, [&](size_t t) {
    threadpool::ProgramBuilder steps;
    weights.AddEmbed(t, steps);
    weights.AddInputs(t, ProgramForm::kManyRows, steps);
    weights.AddSend(t, ProgramForm::kFewRows, false, steps);
    return steps.Take();
  });
  for (const ProgramForm form : {ProgramForm::kFewRows, ProgramForm::kManyRows}) {
    head_[static_cast<size_t>(form)] = ThreadPrograms(threads, [&](size_t t) {
      threadpool::ProgramBuilder steps;
      weights.AddReceive(t, false, steps);
      packed_.live().AddSample(t, 0, steps);
      weights.AddLmHead(t, form, steps);
      return steps.Take();
    });
  }
  packed_.Warm(options);
}

}  // namespace larder::pipeline::stage
