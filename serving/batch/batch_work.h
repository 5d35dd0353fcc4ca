// BatchWork: the rest of a job: hands out the requests without an answer, one after the other, and
// writes the answers as they come. What answers them (this process's engine, running servers) is
// above it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serving/batch/batch_file.h"

namespace larder::serving::inline batch {

struct BatchProgress {
  size_t done = 0, failed = 0;  // requests with an answer, and those of them whose answer is an
                                // error
  size_t prompt_tokens = 0, generated_tokens = 0;  // tokens of this run
  size_t bytes = 0;                                // bytes of answers written in this run
};

class BatchWork {
 public:
  // errors: where answers that are errors go; may be `output`. done: [request]: has an answer
  // already. stopped: once it is true, no request is begun. changed: called when there is progress.
  // All references must outlive it.
  BatchWork(const BatchJob& job, BatchInput& input, BatchOutput& output, BatchOutput& errors,
            std::vector<bool> done, std::function<bool()> stopped,
            std::function<void(const BatchProgress&)> changed);

  // The next request without an answer; nullopt: there is none, or the job ends early.
  std::optional<BatchLine> Next();
  bool all_begun() const { return all_begun_; }
  // Whether it was stopped, or has failed: what runs is to end without an answer.
  bool ended() const { return !error_.empty() || stopped_(); }

  // Writes the body of an answer: of a good one (200) without what differs from run to run, and
  // with the job's ids and time.
  void Answer(const BatchLine& line, nlohmann::json body);
  // Writes an answer that is an error.
  void AnswerError(const BatchLine& line, int status, const nlohmann::json& body);
  void SyncIfDue();  // writes to the disk, once a second

  // Ends the job; the first reason counts.
  void Fail(const std::string& why);
  // Why it ended early: the input changed, the output could not be written, the cluster stayed
  // away. Empty: it did not, or was stopped.
  const std::string& error() const { return error_; }
  const BatchProgress& progress() const { return progress_; }
  const BatchJob& job() const { return job_; }

 private:
  void Write(const BatchLine& line, int status, const nlohmann::json& body);

  const BatchJob& job_;
  BatchInput& input_;
  BatchOutput& output_;
  BatchOutput& errors_;
  const std::vector<bool> done_;
  const std::function<bool()> stopped_;
  const std::function<void(const BatchProgress&)> changed_;
  BatchProgress progress_;
  std::string error_;
  bool all_begun_ = false;
  int64_t synced_ns_ = 0;
};

// The id of a request's answer, without the prefix of its kind: the same in every run.
std::string BatchIdOf(const BatchLine& line);
// The seed of a request that has none: below 2^63, so that a request's JSON can say it.
uint64_t SeedOf(const BatchJob& job, const BatchLine& line);

}  // namespace larder::serving::batch
