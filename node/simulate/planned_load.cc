#include "node/simulate/planned_load.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"

namespace larder::node::inline simulate {
namespace {

// Tokens that mean nothing, but not always the same ones: routers of experts choose by them.
int32_t TokenAt(size_t request, size_t position, size_t vocab) {
  return static_cast<int32_t>((request * 7919 + position * 104'729) % vocab);
}

// What all requests of a run share.
struct Running {
  Clock& clock;
  size_t vocab = 0;
  std::vector<loadgen::RequestResult> results;
  std::vector<size_t> in_slot;                   // [slot]: the request that has it
  size_t in_flight = 0, waiting = 0, ended = 0;  // of those that the scheduler has

  int64_t now_ns() { return static_cast<int64_t>(clock.now_ns()); }
};

class PlannedSequence final : public pipeline::Sequence {
 public:
  PlannedSequence(Running& running, size_t request, const PlannedRequest& plan)
      : running_(running), request_(request), left_(plan.answer_tokens) {
    prompt_.reserve(plan.prompt_tokens);
    for (size_t i = 0; i < plan.prompt_tokens; ++i)
      prompt_.push_back(TokenAt(request, i, running.vocab));
  }
  std::span<const int32_t> prompt() const override { return prompt_; }
  bool cancelled() const override { return false; }
  void InSlot(SlotId slot) override { running_.in_slot[slot.index()] = request_; }
  void Admitted(size_t) override {
    running_.waiting -= !begun_;
    begun_ = true;
  }
  std::optional<int32_t> Next(std::span<const float>) override {
    loadgen::RequestResult& result = running_.results[request_];
    const int64_t now_ns = running_.now_ns();
    if (result.first_ns == 0) {
      result.first_ns = now_ns;
    } else {
      result.gaps_ns.push_back(now_ns - result.last_ns);
    }
    result.last_ns = now_ns;
    if (++result.output_tokens == left_) return std::nullopt;
    return TokenAt(request_, prompt_.size() + result.output_tokens, running_.vocab);
  }
  void Ended(pipeline::SequenceEnd end, const std::string& why) override {
    loadgen::RequestResult& result = running_.results[request_];
    result.ok = end == pipeline::SequenceEnd::kComplete;
    result.error = why;
    running_.waiting -= !begun_;
    --running_.in_flight;
    ++running_.ended;
  }

 private:
  Running& running_;
  const size_t request_, left_;
  bool begun_ = false;
  std::vector<int32_t> prompt_;
};

class PlannedIntake final : public pipeline::Intake {
 public:
  PlannedIntake(const PlannedLoad& load, Running& running,
                const std::function<void(uint64_t)>& wait_until)
      : load_(load), running_(running), wait_until_(wait_until), begin_ns_(running.now_ns()) {}

  std::unique_ptr<pipeline::Sequence> Take() override {
    const int64_t now_ns = running_.now_ns();
    while (come_ < load_.requests.size() && at_ns(come_) <= now_ns) ++come_;
    if (next_ == come_) return nullptr;
    if (load_.max_concurrency > 0 && running_.in_flight >= load_.max_concurrency) return nullptr;
    if (load_.max_concurrency == 0)
      most_in_flight_ = std::max(most_in_flight_, come_ - running_.ended);
    if (running_.waiting >= kMostWaiting) return nullptr;
    const PlannedRequest& request = load_.requests[next_];
    loadgen::RequestResult& result = running_.results[next_];
    // A client that waits for its turn has not sent anything yet; one of whose request the
    // scheduler hears only after a step has.
    result.start_ns = load_.max_concurrency > 0 ? now_ns : at_ns(next_);
    result.prompt_tokens = request.prompt_tokens;
    ++running_.waiting;
    most_in_flight_ = std::max(most_in_flight_, ++running_.in_flight);
    return std::make_unique<PlannedSequence>(running_, next_++, request);
  }
  void StepDone() override {}
  bool WaitForWork(int most_ms) override {
    if (next_ == load_.requests.size()) return false;
    int64_t until_ns = at_ns(next_);
    if (most_ms >= 0)
      until_ns = std::min(until_ns, running_.now_ns() + int64_t{most_ms} * 1'000'000);
    wait_until_(static_cast<uint64_t>(until_ns));
    return true;
  }
  int64_t begin_ns() const { return begin_ns_; }
  size_t most_in_flight() const { return most_in_flight_; }

 private:
  // A prompt is made when the scheduler hears of it. It compares no more than so many that wait,
  // and begins them in their order, so that it need not know of those that come later.
  static constexpr size_t kMostWaiting = 64;

  int64_t at_ns(size_t request) const { return begin_ns_ + load_.requests[request].at_ns; }

  const PlannedLoad& load_;
  Running& running_;
  const std::function<void(uint64_t)>& wait_until_;
  const int64_t begin_ns_;
  size_t next_ = 0, come_ = 0, most_in_flight_ = 0;
};

// Writes what is submitted to an engine.
class TracedEngine final : public pipeline::TokenEngine {
 public:
  TracedEngine(pipeline::TokenEngine& engine, const Running& running, std::FILE* to)
      : engine_(engine), running_(running), to_(to) {}

  void Submit(std::span<const pipeline::TokenRow> rows) override {
    engine_.Submit(rows);
    line_.clear();
    for (size_t i = 0, end = 0; i < rows.size(); i = end) {
      while (end < rows.size() && rows[end].slot == rows[i].slot) ++end;
      line_ += fmt::format("{}{}:{}+{}", i == 0 ? "" : " ", running_.in_slot[rows[i].slot.index()],
                           rows[i].position, end - i);
    }
    line_ += '\n';
    std::fwrite(line_.data(), 1, line_.size(), to_);
  }
  const pipeline::EngineLimits& limits() const override { return engine_.limits(); }
  void Collect() override { engine_.Collect(); }
  pipeline::KvChunks& kv() override { return engine_.kv(); }
  pipeline::KvChannel& kv_channel() override { return engine_.kv_channel(); }
  void Reconnect() override { engine_.Reconnect(); }
  std::span<const float> logits(size_t i) const override { return engine_.logits(i); }
  std::span<const float> hidden(size_t i) override { return engine_.hidden(i); }
  void Spread(size_t count, void (*fn)(void*, size_t), void* context) override {
    engine_.Spread(count, fn, context);
  }
  const std::string& fault(size_t i) const override { return engine_.fault(i); }
  Pulse& pulse() override { return engine_.pulse(); }

 private:
  pipeline::TokenEngine& engine_;
  const Running& running_;
  std::FILE* const to_;
  std::string line_;
};

}  // namespace

PlannedRun RunPlanned(pipeline::TokenEngine& engine, Clock& clock,
                      const std::function<void(uint64_t)>& wait_until, const PlannedLoad& load) {
  const size_t vocab = engine.limits().vocab;
  Running running = {.clock = clock, .vocab = vocab, .results = {}, .in_slot = {}};
  running.results.resize(load.requests.size());
  running.in_slot.resize(engine.limits().capacity.slots);
  std::optional<TracedEngine> traced;
  if (load.trace != nullptr) traced.emplace(engine, running, load.trace);
  // No prompt begins as another does, so that looking for one that does would find nothing.
  pipeline::Scheduler scheduler(traced ? *traced : engine, {.policy = load.policy,
                                                            .reuse_prefixes = false,
                                                            .active_tokens = load.active_tokens,
                                                            .clock = &clock});
  PlannedIntake intake(load, running, wait_until);
  scheduler.Run(intake);
  LARDER_CHECK(running.ended == load.requests.size(), "{} of {} requests ended", running.ended,
               load.requests.size());
  if (load.trace != nullptr && std::fflush(load.trace) != 0)
    throw Error("can't write the micro-batches to the file of --trace");
  const pipeline::SchedulerStatus& status = scheduler.status();
  ScheduledSteps scheduled = {.steps = status.steps.load(),
                              .prompt_rows = status.prefill_rows.load(),
                              .answer_rows = status.decode_rows.load(),
                              .sequences = status.busy_slots.load(),
                              .transitions = status.transitions.load(),
                              .preempted = status.preempted.load(),
                              .yielded = status.yielded.load()};
  uint64_t once = 0;  // the last token of an answer has no row
  for (const loadgen::RequestResult& result : running.results)
    once += result.prompt_tokens + std::max<size_t>(result.output_tokens, 1) - 1;
  scheduled.repeated_rows = scheduled.prompt_rows + scheduled.answer_rows -
                            std::min(once, scheduled.prompt_rows + scheduled.answer_rows);
  return {.load = {.results = std::move(running.results),
                   .duration_s = static_cast<double>(running.now_ns() - intake.begin_ns()) * 1e-9,
                   .most_in_flight = intake.most_in_flight()},
          .scheduled = scheduled};
}

}  // namespace larder::node::simulate
