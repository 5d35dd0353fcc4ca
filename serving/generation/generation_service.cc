#include "serving/generation/generation_service.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace larder::serving::inline generation {
namespace {

constexpr size_t kEvents = 8192;
constexpr size_t kEventsAtOnce = 256;  // handled before the I/O thread looks at clients again
constexpr int kSpins = 2000;  // about 50 us before the compute thread sleeps: the next request
                              // often follows

RequestOutcome OutcomeOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText:
    case FinishReason::kStopString:
      return RequestOutcome::kStop;
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return RequestOutcome::kLength;
    case FinishReason::kCancelled:
      return RequestOutcome::kCancelled;
    case FinishReason::kRefused:
      return RequestOutcome::kRefused;
    case FinishReason::kFailed:
    case FinishReason::kUnavailable:
      return RequestOutcome::kFailed;
  }
  return RequestOutcome::kFailed;
}

FinishReason ReasonOf(pipeline::SequenceEnd end, FinishReason complete) {
  switch (end) {
    case pipeline::SequenceEnd::kComplete:
      return complete;
    case pipeline::SequenceEnd::kContextFull:
      return FinishReason::kContextFull;
    case pipeline::SequenceEnd::kCancelled:
      return FinishReason::kCancelled;
    case pipeline::SequenceEnd::kRefused:
      return FinishReason::kRefused;
    case pipeline::SequenceEnd::kFailed:
      return FinishReason::kFailed;
    case pipeline::SequenceEnd::kUnavailable:
      return FinishReason::kUnavailable;
  }
  return FinishReason::kFailed;
}

}  // namespace

GenerationHandle& GenerationHandle::operator=(GenerationHandle&& other) noexcept {
  if (this != &other) {
    Cancel();
    service_ = other.service_;
    generation_ = std::move(other.generation_);
    other.generation_ = nullptr;
  }
  return *this;
}

void GenerationHandle::Cancel() {
  if (generation_) service_->CancelFromClient(*generation_);
  generation_ = nullptr;
}

void GenerationHandle::Stop() {
  if (generation_) generation_->cancelled.store(true, std::memory_order_relaxed);
}

std::span<const TokenId> GenerationHandle::prompt() const {
  return generation_ ? std::span<const TokenId>(generation_->spec.prompt)
                     : std::span<const TokenId>();
}

GenerationService::GenerationService(GenerationServiceOptions options, ServingMetrics& metrics,
                                     Failures* failures)
    : options_(std::move(options)),
      metrics_(metrics),
      failures_(failures),
      inbox_(options_.queue_limit + options_.slots + most_background()),
      events_(kEvents) {
  static_assert(
      Apart(offsetof(GenerationService, live_), offsetof(GenerationService, overflow_)) &&
      Apart(offsetof(GenerationService, emitted_), offsetof(GenerationService, asleep_)) &&
      Apart(offsetof(GenerationService, stop_), offsetof(GenerationService, wake_pending_)));
  if (options_.tokenizer != nullptr)
    masks_ = MaskThread::Start(options_.tokenizer, options_.vocab, options_.slots);
  overflow_.reserve(2 * options_.slots);
  wake_fd_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  work_fd_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_fd_ || !work_fd_) throw Error("can't make an eventfd: {}", std::strerror(errno));
  metrics_.SetSlots(options_.slots, 0);
}

GenerationService::~GenerationService() = default;

GenerationHandle GenerationService::Start(GenerationSpec spec, Protocol protocol,
                                          GenerationListener* listener) {
  if (draining_) throw Refused(503, "the server is shutting down");
  if (const auto outage = this->outage(); outage && outage->refusing)
    throw Refused(503, "{}", outage->why);
  CheckPrompt(spec.prompt.size(), options_.context, options_.model_context, "prompt");
  Validate(spec.sampling, options_.vocab);
  for (const TokenId token : spec.prompt) {
    if (token < 0 || static_cast<size_t>(token) >= options_.vocab)
      throw Refused(400, "prompt: token {} is not in the vocabulary of {} tokens", token,
                    options_.vocab)
          .On("prompt");
  }
  const bool background = spec.background;
  if (background) spec.slot.reset();  // it leaves its slot for others, and goes on in any
  if (spec.slot)
    spec.slot =
        SlotId(spec.slot->value % static_cast<int32_t>(std::max<size_t>(options_.slots, 1)));
  if (background) {
    if (live_background_ >= most_background())
      throw Refused(429, "too many requests of batches are running; try again later");
  } else {
    // Requests whose admission is still in progress count as waiting, so the free slots are added
    // to the limit.
    const size_t used = live_.size() - live_background_ - waiting_;
    const size_t free = used < options_.slots ? options_.slots - used : 0;
    if (waiting_ >= options_.queue_limit + free)
      throw Refused(429, "the queue is full: {} requests wait for {} slots; try again later",
                    waiting_, options_.slots);
  }
  auto generation =
      std::make_shared<Generation>(std::move(spec), options_.tokenizer, protocol, listener);
  ComputeSide::Sink& sink = *this;
  std::unique_ptr<pipeline::Sequence> sequence =
      std::make_unique<ComputeSide>(generation, *options_.tokenizer, options_.vocab, sink, masks_);
  if (!inbox_.Push(std::move(sequence))) throw Refused(429, "the queue is full; try again later");
  live_.insert(generation);
  ++(background ? live_background_ : waiting_);
  metrics_.SetQueue(waiting_);
  Wake();
  return {this, std::move(generation)};
}

std::vector<int64_t> GenerationService::tokens_left() const {
  std::vector<int64_t> left(options_.slots, -1);
  for (const auto& generation : live_) {
    const GenerationStats& stats = generation->stats;
    if (!generation->admitted || stats.slot.index() >= left.size()) continue;
    if (const int64_t most = generation->spec.max_tokens; most >= 0)
      left[stats.slot.index()] = most - static_cast<int64_t>(stats.generated_tokens);
  }
  return left;
}

void GenerationService::CancelFromClient(Generation& generation) {
  generation.listener = nullptr;
  generation.cancelled.store(true, std::memory_order_relaxed);
}

void GenerationService::CancelAll() {
  for (const auto& generation : live_) generation->cancelled.store(true, std::memory_order_relaxed);
}

void GenerationService::Stop() {
  stop_.store(true);
  Wake();
}

void GenerationService::Nudge() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(work_fd_.get(), &one, sizeof one);  // a few at most
}

std::unique_ptr<pipeline::Sequence> GenerationService::Take() {
  std::unique_ptr<pipeline::Sequence> sequence;
  inbox_.Pop(sequence);
  return sequence;
}

void GenerationService::Emit(GenerationEvent event) {
  emitted_ = true;
  // NOLINTNEXTLINE(bugprone-use-after-move): a full ring leaves the event here
  if (!overflow_.empty() || !events_.Push(std::move(event))) overflow_.push_back(std::move(event));
}

void GenerationService::StepDone() {
  size_t moved = 0;
  while (moved < overflow_.size() && events_.Push(std::move(overflow_[moved]))) ++moved;
  overflow_.erase(overflow_.begin(), overflow_.begin() + static_cast<std::ptrdiff_t>(moved));
  if (!emitted_) return;
  emitted_ = !overflow_.empty();
  WakeForEvents();
}

// One system call wakes the I/O thread for all steps that it has not seen yet.
void GenerationService::WakeForEvents() {
  if (wake_pending_.exchange(true)) return;
  const uint64_t one = 1;
  // never full: it is 0 or 1
  [[maybe_unused]] const auto written = write(wake_fd_.get(), &one, sizeof one);
}

bool GenerationService::WaitForWork(int most_ms) {
  for (int i = 0; i < kSpins; ++i) {
    if (!inbox_.empty()) return true;
    __builtin_ia32_pause();
  }
  // Either this exchange comes after Wake's and sees what was put into the ring before, or Wake
  // sees that this thread sleeps.
  asleep_.exchange(true, std::memory_order_acq_rel);
  if (!inbox_.empty()) return true;
  if (stop_.load()) return false;
  if (!overflow_.empty()) {  // the I/O thread is far behind: leave it the processor
    usleep(100);
    return true;
  }
  pollfd woken{.fd = work_fd_.get(), .events = POLLIN, .revents = 0};
  poll(&woken, 1, most_ms);
  uint64_t count;
  [[maybe_unused]] const auto got = read(work_fd_.get(), &count, sizeof count);
  return true;
}

void GenerationService::Wake() {
  if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(work_fd_.get(), &one, sizeof one);  // a few at most
}

void GenerationService::Dispatch() {
  uint64_t count;
  [[maybe_unused]] const auto got = read(wake_fd_.get(), &count, sizeof count);
  // This comes before the ring is read, so that later events wake this thread again. It is an
  // exchange, not a store, because it must acquire what StepDone's exchange releases: a StepDone
  // that finds the flag set does not write the eventfd, and the reads below must see what it put
  // into the ring before.
  wake_pending_.exchange(false, std::memory_order_acq_rel);
  GenerationEvent event;
  size_t handled = 0;
  while (handled++ < kEventsAtOnce && events_.Pop(event)) {
    try {
      Handle(event);
    } catch (const std::exception& error) {
      if (failures_ != nullptr) failures_->Count("a token", error.what());
      GiveUp(*event.generation);
    }
  }
  metrics_.SetQueue(waiting_);
  metrics_.SetSlots(options_.slots, std::min(options_.slots, live_.size() - waiting_));
  if (!events_.empty()) WakeForEvents();
}

// Ends a generation after a failure; its client is only told that the server failed.
void GenerationService::GiveUp(Generation& generation) noexcept {
  generation.cancelled.store(true, std::memory_order_relaxed);
  try {
    if (!generation.finished) {
      Finish(generation, FinishReason::kFailed,
             "the server failed to handle the generated text; its log says why");
    } else if (GenerationListener* listener = std::exchange(generation.listener, nullptr)) {
      listener->OnEnd({.reason = FinishReason::kFailed,
                       .stop_string = {},
                       .error = "the server failed; its log says why",
                       .embedding = {},
                       .stats = {}});
    }
  } catch (const std::exception& error) {  // the client's connection ends by its time limit
    generation.listener = nullptr;
    if (failures_ != nullptr) failures_->Count("the end of a request", error.what());
  }
}

void GenerationService::Handle(GenerationEvent& event) {
  Generation& generation = *event.generation;
  if (generation.finished) return;
  generation.stats.slot = event.slot;
  switch (event.kind) {
    case GenerationEvent::Kind::kAdmitted:
      if (generation.admitted) return;  // it started again
      generation.admitted = true;
      if (!generation.spec.background) --waiting_;
      generation.stats.queue_ns = event.time_ns - generation.start_ns;
      generation.stats.reused_tokens = event.reused;
      metrics_.Admitted(generation.protocol, generation.stats.queue_ns,
                        generation.stats.prompt_tokens, event.reused);
      TakeProgress(generation, event.reused);
      return;
    case GenerationEvent::Kind::kProgress:
      generation.stats.prompt_ns = event.time_ns - generation.start_ns - generation.stats.queue_ns;
      TakeProgress(generation, event.computed);
      return;
    case GenerationEvent::Kind::kPrompt:
      if (generation.listener != nullptr) generation.listener->OnPrompt(event.prompt);
      return;
    case GenerationEvent::Kind::kEndToken:
      generation.held_logprobs.push_back(std::move(event.logprobs));
      return;
    case GenerationEvent::Kind::kToken:
      TakeToken(generation, event);
      return;
    case GenerationEvent::Kind::kEnded:
      generation.last_ns = event.time_ns;
      Finish(generation, ReasonOf(event.end, event.complete), std::move(event.why),
             std::move(event.embedding));
      return;
  }
}

void GenerationService::TakeToken(Generation& generation, GenerationEvent& event) {
  GenerationStats& stats = generation.stats;
  if (stats.generated_tokens++ == 0) {
    stats.first_token_ns = event.time_ns - generation.start_ns;
    stats.prompt_ns = stats.first_token_ns - stats.queue_ns;
    metrics_.FirstToken(generation.protocol, stats.first_token_ns);
  } else {
    metrics_.NextToken(generation.protocol, event.time_ns - generation.last_ns);
  }
  generation.last_ns = event.time_ns;
  stats.total_ns = event.time_ns - generation.start_ns;
  generation.held_tokens.push_back(event.token);
  if (generation.spec.logprobs >= 0) generation.held_logprobs.push_back(std::move(event.logprobs));
  std::string decoded = generation.decoder.Add(event.token);
  decoded.resize(generation.indent.Keep(decoded));
  stats.has_line_end = stats.has_line_end || decoded.find('\n') != std::string::npos;
  HandOver(generation, generation.stops.Add(decoded));
  const bool has_all = generation.listener != nullptr && generation.listener->has_all();
  const bool is_late =
      generation.spec.most_predict_ms >= 0 && stats.has_line_end &&
      stats.total_ns - stats.first_token_ns > generation.spec.most_predict_ms * 1'000'000;
  if (generation.stops.stopped() || has_all || is_late || generation.indent.stopped()) {
    // the compute thread need not go on
    generation.cancelled.store(true, std::memory_order_relaxed);
    Finish(
        generation,
        generation.stops.stopped() || has_all ? FinishReason::kStopString : FinishReason::kLength,
        "");
  }
}

void GenerationService::TakeProgress(Generation& generation, size_t processed) {
  if (!generation.spec.reports_prompt || generation.listener == nullptr) return;
  if (generation.progress && processed <= *generation.progress) return;  // it began again
  generation.progress = processed;
  generation.listener->OnProgress({.total = generation.stats.prompt_tokens,
                                   .cached = generation.stats.reused_tokens,
                                   .processed = processed,
                                   .stats = generation.stats});
}

// all: of tokens without a text, too.
void GenerationService::HandOver(Generation& generation, std::string_view text, bool all) {
  if (generation.listener == nullptr) return;
  if (text.empty() && (!all || generation.held_logprobs.empty())) return;
  generation.listener->OnText({.text = text,
                               .tokens = generation.held_tokens,
                               .logprobs = generation.held_logprobs,
                               .stats = generation.stats});
  generation.held_tokens.clear();
  generation.held_logprobs.clear();
}

void GenerationService::Finish(Generation& generation, FinishReason reason, std::string error,
                               std::vector<float> embedding) {
  const auto self = generation.shared_from_this();  // live_ may hold the only other reference
  generation.finished = true;
  if (generation.spec.background) {
    --live_background_;
  } else if (!generation.admitted) {
    --waiting_;
  }
  live_.erase(self);
  GenerationEnd end{.reason = reason,
                    .stop_string = {},
                    .error = std::move(error),
                    .embedding = std::move(embedding),
                    .stats = {}};
  generation.stats.total_ns =
      std::max(generation.last_ns, generation.start_ns) - generation.start_ns;
  end.stats = generation.stats;
  std::string rest;
  if (!generation.stops.stopped()) {
    if (!generation.indent.stopped()) rest = generation.stops.Add(generation.decoder.Finish());
    if (!generation.stops.stopped()) rest += generation.stops.Finish();
    if (generation.stops.stopped()) end.reason = FinishReason::kStopString;
    HandOver(generation, rest, generation.spec.every_logprob);
  }
  if (generation.stops.stopped()) end.stop_string = generation.stops.matched_text();
  if (generation.admitted) {
    const GenerationStats& s = end.stats;
    const bool any = s.generated_tokens > 0;
    metrics_.Worked(any ? s.prompt_ns : s.total_ns - s.queue_ns,
                    any ? s.total_ns - s.first_token_ns : 0, s.prompt_tokens + s.generated_tokens);
  }
  metrics_.Finished(generation.protocol, OutcomeOf(end.reason), end.stats.generated_tokens,
                    end.stats.first_token_ns, end.stats.total_ns);
  if (GenerationListener* listener = std::exchange(generation.listener, nullptr))
    listener->OnEnd(end);
}

}  // namespace larder::serving::generation
