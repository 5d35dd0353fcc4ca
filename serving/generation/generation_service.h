// GenerationService: connects the I/O thread, which has the clients, and the compute thread, which
// makes the tokens. Requests go one way and events the other, through rings; neither thread waits
// for the other while it has work. The I/O thread starts and cancels generations and calls Dispatch
// when wake_fd() is readable; the compute thread sees a pipeline::Intake. It exists from the end of
// loading to the end of both threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/memory.h"
#include "pipeline/sequences/request.h"
#include "serving/constraint/mask_thread.h"
#include "serving/generation/compute_side.h"
#include "serving/generation/generation.h"
#include "serving/generation/refused.h"
#include "serving/metrics/failures.h"
#include "serving/metrics/metrics.h"
#include "sync/spsc_ring.h"

namespace larder::serving::inline generation {

struct GenerationServiceOptions {
  std::shared_ptr<const model::Tokenizer> tokenizer;
  size_t vocab = 0;
  size_t context = 0;
  size_t model_context = 0;  // the context that the model was trained with; 0: not known
  size_t slots = 1;
  size_t queue_limit = 256;  // requests without a slot; more are refused
  // any thread; empty: there are no outages
  std::function<std::optional<pipeline::Outage>()> outage;
};

class GenerationService;

// Owns a generation: its destructor cancels it, and the listener is not called again.
class GenerationHandle {
 public:
  GenerationHandle() = default;
  GenerationHandle(GenerationService* service, std::shared_ptr<Generation> generation)
      : service_(service), generation_(std::move(generation)) {}
  GenerationHandle(GenerationHandle&& other) noexcept { *this = std::move(other); }
  GenerationHandle& operator=(GenerationHandle&& other) noexcept;
  ~GenerationHandle() { Cancel(); }
  // Frees the slot within a step; the listener is not called again.
  void Cancel();
  // The same, but the listener's OnEnd is called.
  void Stop();
  // Valid as long as the handle owns the generation.
  std::span<const TokenId> prompt() const;
  explicit operator bool() const { return generation_ != nullptr; }

 private:
  GenerationService* service_ = nullptr;
  std::shared_ptr<Generation> generation_;
};

class GenerationService : public pipeline::Intake, private ComputeSide::Sink {
 public:
  // which outlive it
  GenerationService(GenerationServiceOptions, ServingMetrics&, Failures* = nullptr);
  ~GenerationService() override;

  // I/O thread. Throws Refused: a full queue, draining, an outage (503), a prompt that does not fit
  // (400). The caller that catches it counts it, as it counts requests that it refused itself.
  GenerationHandle Start(GenerationSpec, Protocol, GenerationListener*);
  int wake_fd() const { return wake_fd_.get(); }
  // Hands over events; those beyond a number make wake_fd readable again, so that the I/O thread
  // has time for other clients, however fast tokens come.
  void Dispatch();
  // Cheap if there are no events; returns whether there were any.
  bool DispatchIfDue() {
    const bool due = wake_pending_.load(std::memory_order_acquire);
    if (due) Dispatch();
    return due;
  }
  void Drain() { draining_ = true; }  // refuses new generations; running ones go on
  void CancelAll();                   // ends all generations; their listeners' OnEnd is called
  bool draining() const { return draining_; }
  // nullopt: all sockets that it needs are connected.
  std::optional<pipeline::Outage> outage() const {
    return options_.outage ? options_.outage() : std::nullopt;
  }
  size_t live() const { return live_.size(); }  // started and not ended
  // Background generations are not counted: they do not wait in the clients' queue and its limit
  // does not apply to them.
  size_t waiting() const { return waiting_; }  // clients', without a slot
  size_t live_background() const { return live_background_; }
  // Generations of the background that may be live at once.
  size_t most_background() const { return kBackgroundPerSlot * options_.slots; }
  // How many generations an idle service can run at once.
  size_t most_at_once() const { return options_.slots + options_.queue_limit; }
  const GenerationServiceOptions& options() const { return options_; }
  ServingMetrics& metrics() { return metrics_; }
  // [slot]: how many tokens the request in the slot may still generate; -1: no request, or no
  // limit.
  std::vector<int64_t> tokens_left() const;
  // The memory of the states of grammars that texts have reached.
  size_t automata_bytes() const { return masks_ == nullptr ? 0 : masks_->bytes(); }
  // Any thread. Makes WaitForWork return false as soon as there is nothing to do.
  void Stop();
  // Any thread. Ends a WaitForWork, also one that is about to begin.
  void Nudge();

  // Compute thread.
  std::unique_ptr<pipeline::Sequence> Take() override;
  void StepDone() override;
  bool stopping() const override { return stop_.load(std::memory_order_relaxed); }
  bool WaitForWork(int most_ms) override;

 private:
  friend class GenerationHandle;

  void Wake();           // the compute thread
  void WakeForEvents();  // the I/O thread
  void Emit(GenerationEvent) override;
  void Handle(GenerationEvent&);
  void GiveUp(Generation&) noexcept;
  static void TakeProgress(Generation&, size_t processed);
  void TakeToken(Generation&, GenerationEvent&);
  static void HandOver(Generation&, std::string_view text, bool all = false);
  void Finish(Generation&, FinishReason, std::string error, std::vector<float> embedding = {});
  void CancelFromClient(Generation&);

  GenerationServiceOptions options_;
  ServingMetrics& metrics_;
  Failures* failures_;
  std::shared_ptr<MaskThread> masks_;  // with a tokenizer; used by the compute thread
  Descriptor wake_fd_;                 // the I/O thread polls it
  Descriptor work_fd_;                 // the compute thread sleeps on it
  // As many as two requests per slot can have (CompletionRequest limits the choices of one).
  static constexpr size_t kBackgroundPerSlot = 2 * 64;

  bool draining_ = false;
  size_t waiting_ = 0, live_background_ = 0;
  std::unordered_set<std::shared_ptr<Generation>> live_;

  sync::SpscRing<std::unique_ptr<pipeline::Sequence>> inbox_;  // I/O to compute
  sync::SpscRing<GenerationEvent> events_;                     // compute to I/O
  // Compute thread: events that did not fit, in order; at most one token per slot and step.
  alignas(kFalseSharingBytes) std::vector<GenerationEvent> overflow_;
  bool emitted_ = false;
  // the compute thread sleeps, or is about to
  alignas(kFalseSharingBytes) std::atomic<bool> asleep_{false};
  std::atomic<bool> stop_{false};
  alignas(kFalseSharingBytes) std::atomic<bool> wake_pending_{false};
};

}  // namespace larder::serving::generation
