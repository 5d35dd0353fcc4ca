#include "serving/batch/batch_run.h"

#include <utility>

namespace larder::serving::inline batch {

BatchRun::BatchRun(GenerationService& service, const CompletionDefaults& defaults, BatchWork& work,
                   size_t in_flight)
    : service_(service), defaults_(defaults), work_(work), in_flight_(in_flight) {}

BatchRun::~BatchRun() = default;

void BatchRun::Fill() {
  if (work_.ended()) running_.clear();  // cancels them
  while (running_.size() < in_flight_) {
    std::optional<BatchLine> line = work_.Next();
    if (!line) return;
    running_.push_back(std::make_unique<RunningBatchRequest>(
        PrepareBatchRequest(work_.job(), std::move(*line), defaults_), service_,
        std::function<void()>()));
    WriteEnded();
  }
}

void BatchRun::WriteEnded() {
  running_.remove_if([this](const std::unique_ptr<RunningBatchRequest>& running) {
    if (!running->ended()) return false;
    BatchAnswer& answer = running->answer();
    if (!answer.is_final()) {
      work_.Fail(answer.why);
    } else if (answer.status == 200) {
      work_.Answer(running->line(), answer.TakeBody());
    } else {
      work_.AnswerError(running->line(), answer.status, answer.TakeBody());
    }
    return true;
  });
}

// Passes on what the sequences have made, and writes and forgets the requests that have ended.
void BatchRun::Collect() {
  service_.StepDone();
  while (service_.DispatchIfDue()) {
  }
  WriteEnded();
  work_.SyncIfDue();
}

std::unique_ptr<pipeline::Sequence> BatchRun::Take() {
  Fill();
  return service_.Take();
}

void BatchRun::StepDone() { Collect(); }

bool BatchRun::WaitForWork(int /*most_ms*/) {
  Collect();
  Fill();
  return !work_.all_begun() || !running_.empty() || service_.live() > 0;
}

}  // namespace larder::serving::batch
