// BatchRun: a batch job at work: an Intake that feeds the scheduler from a BatchInput and writes answers to a
// BatchOutput. Everything happens on the compute thread, between steps: there is no client whom that could
// delay.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "serving/batch/batch_file.h"
#include "serving/reply/completion.h"
#include "serving/scheduling/generation_service.h"

namespace larder::serving::inline batch {

struct BatchProgress {
  size_t done = 0, failed = 0;  // requests with an answer, and those of them whose answer is an error
  size_t prompt_tokens = 0, generated_tokens = 0;  // of this run
};

class BatchRun final : public pipeline::Intake {
 public:
  // done: [request]: has an answer already. in_flight: requests that are begun at once. stopped: asked
  // between steps; once it is true, no request is begun and those that run end without an answer. changed:
  // called when there is progress. All references must outlive it.
  BatchRun(GenerationService& service, const CompletionDefaults& defaults, const BatchJob& job,
           BatchInput& input, BatchOutput& output, std::vector<bool> done, size_t in_flight,
           std::function<bool()> stopped, std::function<void(const BatchProgress&)> changed);
  ~BatchRun() override;

  std::unique_ptr<pipeline::Sequence> Take() override;
  void StepDone() override;
  bool WaitForWork(int most_ms) override;

  const BatchProgress& progress() const { return progress_; }
  // Why it ended early: the input changed, the output could not be written, the cluster stayed away. Empty:
  // it did not, or was stopped.
  const std::string& error() const { return error_; }

 private:
  struct Running;
  void Fill();
  void Begin(BatchLine line);
  void Write(const BatchLine& line, int status, const nlohmann::json& body);
  void Fail(const std::string& why);
  void Collect();

  GenerationService& service_;
  const CompletionDefaults& defaults_;
  const BatchJob& job_;
  BatchInput& input_;
  BatchOutput& output_;
  std::vector<bool> done_;
  const size_t in_flight_;
  const std::function<bool()> stopped_;
  const std::function<void(const BatchProgress&)> changed_;
  std::list<std::unique_ptr<Running>> running_;
  BatchProgress progress_;
  std::string error_;
  bool all_begun_ = false;
  int64_t synced_ns_ = 0;
};

// Checks a request as BatchRun will read it; for BatchInput. Throws Error.
void CheckBatchLine(const BatchLine& line, const CompletionDefaults& defaults);

}  // namespace larder::serving::batch
