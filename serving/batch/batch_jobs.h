// BatchJobs: the batches of a BatchStore at work: their files are checked a few lines at a time,
// their requests are handed out, and the answers are written. What was killed in the middle goes
// on: BatchJob, BatchInput and BatchOutput, as `larder batch --resume` uses them. Who runs the
// requests is above it. Used by one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/api/completion_request.h"
#include "serving/batch/batch_request.h"
#include "serving/batch/batch_store.h"
#include "serving/batch/batch_work.h"
#include "serving/metrics/metrics.h"

namespace larder::serving::inline batch {

// What answers depend on besides requests: the same in BatchJob.
struct BatchFacts {
  std::string engine;   // the program's version
  std::string options;  // defaults of requests, as text
};

// Says to which batch a request belongs that was handed out. It is returned once, with Answer or
// Drop.
struct BatchTicket {
  std::string batch;
  uint64_t opening = 0;  // number of the batch's opening: an answer for an earlier one is ignored
};

struct BegunRequest {
  BatchTicket ticket;
  Tenant tenant = kEverybody;
  BatchRequest request;
};

class BatchJobs {
 public:
  // All must outlive it. knows: whether a tenant's key is still accepted: its batches wait while it
  // isn't.
  BatchJobs(BatchStore& store, const CompletionDefaults& defaults, BatchFacts facts,
            std::function<bool(Tenant)> knows, BatchStore::Log log);
  ~BatchJobs();

  void Open(const std::string& batch);  // new, or unfinished when the process began
  // Does a part of the work that comes before requests can be handed out. Returns whether more can
  // be done at once.
  bool Step();
  // Adds up to `most` requests, taking all batches in turn.
  void Next(size_t most, std::vector<BegunRequest>& begun);
  void Answer(const BatchTicket&, const BatchLine&, BatchAnswer);
  void Drop(const BatchTicket&);  // it will not be answered, since the batch is cancelled
  // Hands out no more requests of the batch; it ends when those handed out have come back. Throws
  // Refused if it has ended.
  void Cancel(BatchRecord&);
  void SyncIfDue();  // writes answers to the disk, once a second

  // Any thread.
  bool has_requests() const { return has_requests_.load(std::memory_order_relaxed); }
  BatchCounts counts() const;

 private:
  struct Job;
  void Try(Job&, const std::function<void()>& what);
  void Begin(Job&);
  std::string WhyNotCheck(Job&);
  void NoteLine(Job&, uint64_t line);
  void ForgetCheck(Job&);
  void CheckSome(Job&);
  void Checked(Job&);
  void Fail(Job&, std::vector<BatchProblem> problems);
  void End(Job&, BatchStatus);
  void Pause(Job&, const std::string& why);
  void Close(Job&);
  void Written(Job&);
  void EndIfDone(Job&);
  bool MayBegin(Job&);
  bool BeginNext(Job&, std::vector<BegunRequest>& begun);
  Job* Find(const BatchTicket&);
  void Count();

  BatchStore& store_;
  const CompletionDefaults& defaults_;
  const BatchFacts facts_;
  const std::function<bool(Tenant)> knows_;
  const BatchStore::Log log_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;  // the batches that have not ended
  std::string last_;                                  // the batch that handed out the last request
  uint64_t openings_ = 0;
  uint64_t completed_ = 0, failed_ = 0;
  std::atomic<bool> has_requests_{false};
  std::atomic<uint64_t> counted_jobs_{0}, counted_left_{0}, counted_completed_{0},
      counted_failed_{0}, counted_files_{0}, counted_bytes_{0};
};

}  // namespace larder::serving::batch
