#include "serving/batch/batch_request.h"

#include <utility>

#include "base/work.h"
#include "serving/batch/batch_work.h"
#include "serving/reply/error_reply.h"

namespace larder::serving::inline batch {

using nlohmann::json;

void CheckBatchLine(const BatchLine& line, const CompletionDefaults& defaults) {
  const OwnWork work;
  ReadCompletionRequest(ParseJson(line.body), line.dialect, defaults);
}

BatchRequest PrepareBatchRequest(const BatchJob& job, BatchLine line,
                                 const CompletionDefaults& defaults) {
  BatchRequest request;
  CompletionDefaults with_seed = defaults;
  with_seed.seed = SeedOf(job, line);
  request.prepared.text = line.body;
  request.prepared.dialect = line.dialect;
  request.prepared.Run(with_seed);
  request.facts.dialect = line.dialect;
  request.facts.id = BatchIdOf(line);
  request.facts.model = job.model;
  request.facts.created = job.created;
  request.facts.fingerprint = job.model_fingerprint;
  request.facts.tokenizer = defaults.tokenizer.get();
  request.line = std::move(line);
  return request;
}

RunningBatchRequest::RunningBatchRequest(BatchRequest request, GenerationService& service,
                                         std::function<void()> ended)
    : line_(std::move(request.line)), ended_(std::move(ended)) {
  PreparedRequest& prepared = request.prepared;
  try {
    if (prepared.refused) throw Refused(*prepared.refused);
    CompletionSink& sink = *this;
    completion_ = std::make_unique<Completion>(service, prepared.request, std::move(prepared.specs),
                                               std::move(request.facts), Protocol::kBatch, sink);
  } catch (const Refused& refused) {
    Refuse(refused);
  } catch (const Error& error) {
    Refuse(Refused(400, "{}", error.what()));
  }
}

void RunningBatchRequest::Refuse(const Refused& why) {
  answer_ = {.status = why.status(), .body = ErrorJson(why), .make = {}, .why = why.what()};
}

void RunningBatchRequest::OnDone(const json* whole) {
  answer_ = {.status = 200, .body = *whole, .make = {}, .why = {}};
  if (ended_) ended_();
}

bool RunningBatchRequest::MakesElsewhere(const std::function<json()>& make) {
  answer_ = {.status = 200, .body = {}, .make = make, .why = {}};
  if (ended_) ended_();
  return true;
}

void RunningBatchRequest::OnFailure(int status, const std::string& message) {
  answer_ = {.status = status, .body = ErrorJson(status, message), .make = {}, .why = message};
  if (ended_) ended_();
}

}  // namespace larder::serving::batch
