// BatchService: runs the batches of a BatchStore beside the server's clients: their requests go to
// the GenerationService as its background, as many as the slots that clients leave can use. A
// thread of its own does all that files and requests need; clients' requests about files run there
// too. All functions are the I/O thread's, unless they say otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "serving/admission/background.h"
#include "serving/batch/batch_jobs.h"
#include "serving/batch/batch_request.h"
#include "serving/batch/batch_store.h"
#include "serving/generation/generation_service.h"

namespace larder::serving::inline batch {

class BatchService {
 public:
  // What work on the thread of files may use.
  struct Files {
    BatchStore& store;
    BatchJobs& jobs;
  };

  // to_io: runs something on the I/O thread, later; any thread. failed: gets what() of what a
  // request's handling threw. Throws Error.
  BatchService(const std::string& folder, const BatchQuota& quota, BatchStore::Log log,
               std::function<void(std::function<void()>)> to_io, Background::FailureHandler failed);
  ~BatchService();

  // Called when the model is loaded: unfinished batches go on. All arguments must outlive this; any
  // thread may call `knows`.
  void Begin(GenerationService& service, const CompletionDefaults& defaults, BatchFacts facts,
             std::function<bool(Tenant)> knows);
  bool ready() const { return service_ != nullptr; }
  // Runs `work` on the thread of files when it is the peer's turn, then `then` here; its argument
  // is false if the work threw. Once ready. Returns its number, never 0.
  uint64_t Post(const std::string& peer, std::function<void(Files&)> work,
                std::function<void(bool ok)> then);
  // Gives up posted work that nobody waits for: if its turn has not come, it and `then` are freed
  // at once. Clients may come and go faster than the disk works.
  void Forget(uint64_t posted) { tickets_.erase(posted); }
  void Tick();   // to be called now and then: begins and ends requests
  void Drain();  // no more requests are begun, and those that run end without an answer
  // Ends the batch's running requests without an answer.
  void Stop(const std::string& batch);
  // Ends the thread; what it has not begun is dropped. Called by the thread that made this, once
  // the I/O thread has ended.
  void Close();
  BatchCounts counts() const;

 private:
  struct Running;
  void Fill();
  void Start(BegunRequest);
  void Collect();
  void CollectSoon();
  void StepFiles();
  size_t Room() const;

  const std::function<void(std::function<void()>)> to_io_;
  const Background::FailureHandler failed_;
  BatchStore store_;
  std::unique_ptr<BatchJobs> jobs_;
  GenerationService* service_ = nullptr;
  std::list<std::unique_ptr<Running>> running_;
  std::map<uint64_t, JobTicket> tickets_;  // tickets of posted work that has not come back
  uint64_t posted_ = 0;
  bool asking_ = false, stepping_ = false, collecting_ = false, draining_ = false;
  int64_t not_before_ns_ = 0;  // when to try again after the service refused a request
  // null once this is destroyed
  const std::shared_ptr<BatchService*> self_ = std::make_shared<BatchService*>(this);
  Background thread_;  // last: it ends before what its jobs use
};

}  // namespace larder::serving::batch
