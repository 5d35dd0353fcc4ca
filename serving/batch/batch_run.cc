#include "serving/batch/batch_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "serving/reply/completion.h"

namespace larder::serving::inline batch {
namespace {

using nlohmann::json;

constexpr double kSyncEveryS = 1;

// What an answer says of its own making, which differs from run to run.
void LeaveOutCircumstances(json& body) {
  body.erase("timings");
  const auto usage = body.find("usage");
  if (usage == body.end()) return;
  usage->erase("prompt_tokens_details");
  usage->erase("input_tokens_details");
}

}  // namespace

struct BatchRun::Running : CompletionSink {
  Running(BatchRun& run, BatchLine what) : batch(run), line(std::move(what)) {}
  void OnEvent(const char*, std::string) override {}
  void OnDone(const json* whole) override {
    ended = true;
    json body = *whole;
    if (const auto usage = body.find("usage"); usage != body.end()) {
      const bool responses = line.dialect == Dialect::kResponses;
      batch.progress_.prompt_tokens += usage->at(responses ? "input_tokens" : "prompt_tokens").get<size_t>();
      batch.progress_.generated_tokens +=
          usage->at(responses ? "output_tokens" : "completion_tokens").get<size_t>();
    }
    LeaveOutCircumstances(body);
    batch.Write(line, 200, body);
  }
  void OnFailure(int status, const std::string& message) override {
    ended = true;
    if (status == 503) {  // not the request's fault: it gets its answer when the job goes on
      batch.Fail(message);
    } else {
      batch.Write(line, status, ErrorJson(status, message));
    }
  }

  BatchRun& batch;
  const BatchLine line;
  std::unique_ptr<Completion> completion;
  bool ended = false;
};

void CheckBatchLine(const BatchLine& line, const CompletionDefaults& defaults) {
  ReadCompletionRequest(ParseJson(line.body), line.dialect, defaults);
}

BatchRun::BatchRun(GenerationService& service, const CompletionDefaults& defaults, const BatchJob& job,
                   BatchInput& input, BatchOutput& output, std::vector<bool> done, size_t in_flight,
                   std::function<bool()> stopped, std::function<void(const BatchProgress&)> changed)
    : service_(service),
      defaults_(defaults),
      job_(job),
      input_(input),
      output_(output),
      done_(std::move(done)),
      in_flight_(in_flight),
      stopped_(std::move(stopped)),
      changed_(std::move(changed)),
      synced_ns_(NowNs()) {
  progress_.done = static_cast<size_t>(std::count(done_.begin(), done_.end(), true));
}

BatchRun::~BatchRun() = default;

void BatchRun::Fail(const std::string& why) {
  if (error_.empty()) error_ = why;
}

void BatchRun::Write(const BatchLine& line, int status, const json& body) {
  if (!error_.empty()) return;  // a line that was cut must stay the last one
  try {
    output_.Append(line, status, body);
  } catch (const Error& error) {
    Fail(error.what());
    return;
  }
  ++progress_.done;
  progress_.failed += status != 200;
  changed_(progress_);
}

void BatchRun::Begin(BatchLine line) {
  const IdHash hash = HashOfId(line.custom_id);
  CompletionDefaults defaults = defaults_;
  defaults.seed = job_.seed ^ hash.low;
  PreparedRequest prepared;
  prepared.text = line.body;
  prepared.dialect = line.dialect;
  prepared.Run(defaults);
  if (prepared.refused) {
    Write(line, prepared.refused->status(),
          ErrorJson(prepared.refused->status(), prepared.refused->what(), prepared.refused->param()));
    return;
  }
  ReplyHead head;
  head.dialect = line.dialect;
  head.id = fmt::format("{:016x}", hash.high);
  head.model = job_.model;
  head.created = job_.created;
  head.tokenizer = defaults_.tokenizer.get();
  auto running = std::make_unique<Running>(*this, std::move(line));
  try {
    running->completion = std::make_unique<Completion>(service_, prepared.request, std::move(prepared.specs),
                                                       std::move(head), Protocol::kHttp, *running);
    running_.push_back(std::move(running));
  } catch (const Refused& refused) {
    if (refused.status() == 503 || refused.status() == 429) return Fail(refused.what());
    Write(running->line, refused.status(), ErrorJson(refused.status(), refused.what(), refused.param()));
  }
}

void BatchRun::Fill() {
  if (!error_.empty() || stopped_()) {
    running_.clear();  // cancels them
    all_begun_ = true;
  }
  while (!all_begun_ && running_.size() < in_flight_) {
    std::optional<BatchLine> line;
    try {
      line = input_.Next();
    } catch (const Error& error) {
      return Fail(error.what());
    }
    if (!line) {
      all_begun_ = true;
    } else if (!done_[line->index]) {
      Begin(std::move(*line));
      if (!error_.empty()) return;
    }
  }
}

// Passes on what the sequences have made, and forgets the requests that have ended.
void BatchRun::Collect() {
  service_.StepDone();
  service_.DispatchIfDue();
  running_.remove_if([](const std::unique_ptr<Running>& running) { return running->ended; });
  if (SecondsSince(synced_ns_) < kSyncEveryS) return;
  synced_ns_ = NowNs();
  try {
    output_.Sync();
  } catch (const Error& error) {
    Fail(error.what());
  }
}

std::unique_ptr<pipeline::Sequence> BatchRun::Take() {
  Fill();
  return service_.Take();
}

void BatchRun::StepDone() { Collect(); }

bool BatchRun::WaitForWork(int /*most_ms*/) {
  Collect();
  Fill();
  return !all_begun_ || !running_.empty() || service_.live() > 0;
}

}  // namespace larder::serving::batch
