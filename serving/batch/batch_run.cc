#include "serving/batch/batch_run.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "serving/reply/completion.h"

namespace larder::serving::inline batch {

using nlohmann::json;

struct BatchRun::Running : CompletionSink {
  Running(BatchWork& to, BatchLine what) : work(to), line(std::move(what)) {}
  void OnEvent(const char*, std::string) override {}
  void OnDone(const json* whole) override {
    ended = true;
    work.Answer(line, *whole);
  }
  void OnFailure(int status, const std::string& message) override {
    ended = true;
    if (status == 503) {  // not the request's fault: it gets its answer when the job goes on
      work.Fail(message);
    } else {
      work.AnswerError(line, status, ErrorJson(status, message));
    }
  }

  BatchWork& work;
  const BatchLine line;
  std::unique_ptr<Completion> completion;
  bool ended = false;
};

void CheckBatchLine(const BatchLine& line, const CompletionDefaults& defaults) {
  ReadCompletionRequest(ParseJson(line.body), line.dialect, defaults);
}

BatchRun::BatchRun(GenerationService& service, const CompletionDefaults& defaults, BatchWork& work,
                   size_t in_flight)
    : service_(service), defaults_(defaults), work_(work), in_flight_(in_flight) {}

BatchRun::~BatchRun() = default;

void BatchRun::Begin(BatchLine line) {
  CompletionDefaults defaults = defaults_;
  defaults.seed = SeedOf(work_.job(), line);
  PreparedRequest prepared;
  prepared.text = line.body;
  prepared.dialect = line.dialect;
  prepared.Run(defaults);
  const auto refuse = [&](const Refused& why) {
    work_.AnswerError(line, why.status(), ErrorJson(why.status(), why.what(), why.param()));
  };
  if (prepared.refused) return refuse(*prepared.refused);
  ReplyHead head;
  head.dialect = line.dialect;
  head.id = work_.IdOf(line);
  head.model = work_.job().model;
  head.created = work_.job().created;
  head.tokenizer = defaults_.tokenizer.get();
  auto running = std::make_unique<Running>(work_, line);
  try {
    running->completion =
        std::make_unique<Completion>(service_, prepared.request, std::move(prepared.specs),
                                     std::move(head), Protocol::kHttp, *running);
    running_.push_back(std::move(running));
  } catch (const Refused& refused) {
    if (refused.status() == 503 || refused.status() == 429) return work_.Fail(refused.what());
    refuse(refused);
  }
}

void BatchRun::Fill() {
  if (work_.ended()) running_.clear();  // cancels them
  while (running_.size() < in_flight_) {
    std::optional<BatchLine> line = work_.Next();
    if (!line) return;
    Begin(std::move(*line));
  }
}

// Passes on what the sequences have made, and forgets the requests that have ended.
void BatchRun::Collect() {
  service_.StepDone();
  service_.DispatchIfDue();
  running_.remove_if([](const std::unique_ptr<Running>& running) { return running->ended; });
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
