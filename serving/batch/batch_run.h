// BatchRun: runs a batch job on this process's engine: an Intake that feeds the scheduler from a
// BatchWork. Everything happens on the compute thread, between steps, as there are no clients to
// delay.
#pragma once

#include <list>
#include <memory>

#include "serving/batch/batch_request.h"
#include "serving/batch/batch_work.h"
#include "serving/generation/generation_service.h"

namespace larder::serving::inline batch {

class BatchRun final : public pipeline::Intake {
 public:
  // in_flight: the number of requests that run at once. All references must outlive it.
  BatchRun(GenerationService& service, const CompletionDefaults& defaults, BatchWork& work,
           size_t in_flight);
  ~BatchRun() override;

  std::unique_ptr<pipeline::Sequence> Take() override;
  void StepDone() override;
  bool WaitForWork(int most_ms) override;

 private:
  void Fill();
  void Collect();
  void WriteEnded();

  GenerationService& service_;
  const CompletionDefaults& defaults_;
  BatchWork& work_;
  const size_t in_flight_;
  std::list<std::unique_ptr<RunningBatchRequest>> running_;
};

}  // namespace larder::serving::batch
