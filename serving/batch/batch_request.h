// A request of a job on its way: prepared on any thread, then running on the thread that has the
// GenerationService's listeners, until it has its answer. `larder batch` and `serve` share it.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "serving/api/completion_request.h"
#include "serving/batch/batch_file.h"
#include "serving/reply/completion.h"

namespace larder::serving::inline batch {

struct BatchRequest {
  BatchLine line;
  PreparedRequest prepared;
  ReplyFacts facts;
};

// Reads and tokenizes a request of the job. Any thread.
BatchRequest PrepareBatchRequest(const BatchJob& job, BatchLine line,
                                 const CompletionDefaults& defaults);
// Checks a request as PrepareBatchRequest will read it; for BatchInput. Throws Error.
void CheckBatchLine(const BatchLine& line, const CompletionDefaults& defaults);

struct BatchAnswer {
  // 503 and 429 are not final: not the request's fault; it gets its answer when the job goes on.
  bool is_final() const { return status != 503 && status != 429; }
  int status = 0;
  // The body of a final answer; to be called once, by the thread that writes it, since a large body
  // is made only then.
  nlohmann::json TakeBody() { return make ? make() : std::move(body); }
  nlohmann::json body;
  std::function<nlohmann::json()> make;  // makes a large body; empty: `body` has it
  std::string why;                       // the reason of one that is not final
};

// Its destructor cancels it.
class RunningBatchRequest final : private CompletionSink {
 public:
  // Starts the request, or has its answer at once. ended: called when an answer comes later; it may
  // not destroy this; may be empty. The service must outlive it.
  RunningBatchRequest(BatchRequest, GenerationService&, std::function<void()> ended);

  const BatchLine& line() const { return line_; }
  bool ended() const { return answer_.status != 0; }
  BatchAnswer& answer() { return answer_; }

 private:
  void OnEvent(const char*, std::string) override {}
  void OnDone(const nlohmann::json* whole) override;
  bool MakesElsewhere(const std::function<nlohmann::json()>& make) override;
  void OnFailure(int status, const std::string& message) override;
  void Refuse(const Refused&);

  const BatchLine line_;
  const std::function<void()> ended_;
  BatchAnswer answer_;
  std::unique_ptr<Completion> completion_;
};

}  // namespace larder::serving::batch
