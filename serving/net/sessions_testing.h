// Test support: a server's state with a service but no network connections, a Wire that keeps what
// is written, and a model of made-up logits on a thread of its own. Included by tests and fuzzers
// only.
#pragma once

#include <poll.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/net/server_state.h"
#include "serving/net/session.h"

namespace larder::serving::inline net {

class TestWire : public Wire {
 public:
  explicit TestWire(Admission* admission = nullptr, const std::string& peer = "192.0.2.1")
      : own_(AdmissionLimits()), client_((admission ? *admission : own_).Open(PeerOf(peer))) {}
  void Write(std::string_view bytes) override { written += bytes; }
  void Close() override { closed = true; }
  bool full() const override { return closed || written.size() - taken > most_untaken; }
  void Later() override { later = true; }
  const Admission::Client& client() const override { return client_; }
  // Gives the session turns as long as it asks for them.
  void TakeTurns(Session& session) {
    while (std::exchange(later, false)) session.OnTurn();
  }
  const std::string& peer() const override { return name_; }
  std::string written;
  size_t taken = 0, most_untaken = SIZE_MAX;
  bool closed = false, later = false;

 private:
  Admission own_;
  Admission::Client client_;
  std::string name_ = "test";
};

// The state of a server that is ready.
struct TestState {
  static constexpr size_t kContext = 64;

  explicit TestState(size_t slots = 2, size_t queue = 4) : metrics({"socket"}) {
    const auto tokenizer = model::Tokenizer::FromData(model::TinySpm());
    state.defaults.tokenizer = tokenizer;
    state.defaults.chat_template = model::ChatTemplate::Named("chatml", *tokenizer);
    state.defaults.sampling.temperature = 0;
    state.defaults.vocab = tokenizer->size();
    state.defaults.context = kContext;
    state.defaults.longest_token_bytes = LongestTokenBytes(*tokenizer);
    state.defaults.model = "tiny";
    state.defaults.strict_model = true;
    state.plan = {{"object", "larder.plan"}};
    state.metrics = &metrics;
    service = std::make_unique<GenerationService>(
        GenerationServiceOptions{.tokenizer = tokenizer,
                                 .vocab = tokenizer->size(),
                                 .context = kContext,
                                 .slots = slots,
                                 .queue_limit = queue,
                                 .outage = [this] { return outage; }},
        metrics);
    state.service = service.get();
  }

  ServingMetrics metrics;
  std::optional<pipeline::Outage> outage;  // outage of the cluster
  std::unique_ptr<GenerationService> service;
  ServerState state;
};

// Runs all sequences at once, one token of each per step. The next token is made from the last one
// and its position.
class TestModel {
 public:
  TestModel(pipeline::Intake& intake, size_t vocab) : intake_(intake), logits_(vocab) {}

  bool idle() const { return all_.empty(); }

  // Called by the compute thread, or by a test's only thread.
  void Step() {
    while (auto sequence = intake_.Take()) {
      sequence->Admitted(0);
      const auto prompt = sequence->prompt();
      sequence->Computed(prompt.size());
      if (sequence->wanted() == pipeline::Wanted::kPromptLogits) {
        for (size_t i = 0; i + 1 < prompt.size(); ++i) {
          FillLogits(prompt[i], i + 1);
          sequence->PromptLogits(i, logits_);
        }
      }
      all_.push_back({std::move(sequence), prompt.back(), prompt.size()});
    }
    std::erase_if(all_, [&](One& one) {
      if (one.sequence->cancelled()) {
        one.sequence->Ended(pipeline::SequenceEnd::kCancelled, "");
        return true;
      }
      FillLogits(one.last, one.length);
      const auto next = one.sequence->Next(logits_);
      if (next && ++one.length < TestState::kContext) {
        one.last = *next;
        return false;
      }
      one.sequence->Ended(
          next ? pipeline::SequenceEnd::kContextFull : pipeline::SequenceEnd::kComplete, "");
      return true;
    });
    intake_.StepDone();
  }

 private:
  void FillLogits(int32_t last, size_t length) {
    const size_t like = (static_cast<size_t>(last) * 7 + length) % 12 + 259;  // the token of a word
    for (size_t i = 0; i < logits_.size(); ++i)
      logits_[i] = i == like ? 5.0f : static_cast<float>(i % 7) * 0.1f;
  }
  struct One {
    std::unique_ptr<pipeline::Sequence> sequence;
    int32_t last;
    size_t length;
  };

  pipeline::Intake& intake_;
  std::vector<float> logits_;
  std::vector<One> all_;
};

// Runs a TestModel until the intake ends; step_mutex is held in each step.
inline void RunTestModel(pipeline::Intake& intake, size_t vocab, std::mutex& step_mutex) {
  TestModel model(intake, vocab);
  while (!model.idle() || intake.WaitForWork(-1)) {
    const std::lock_guard step(step_mutex);
    model.Step();
  }
}

// A TestModel on a thread of its own.
class TestModelThread {
 public:
  TestModelThread(GenerationService& service, size_t vocab)
      : service_(service), thread_([this, vocab] { RunTestModel(service_, vocab, step_); }) {}
  ~TestModelThread() {
    service_.Stop();
    thread_.join();
  }

  // No step runs while the lock is held: what a test does meanwhile comes before the next token.
  std::unique_lock<std::mutex> Hold() { return std::unique_lock(step_); }

  // Called on the I/O thread, like a server's loop: hands over events until no generation is live.
  static void DispatchAll(GenerationService& service) {
    while (service.live() > 0) {
      pollfd wait{.fd = service.wake_fd(), .events = POLLIN, .revents = 0};
      poll(&wait, 1, 1000);
      service.Dispatch();
    }
  }

 private:
  GenerationService& service_;
  std::mutex step_;
  std::thread thread_;
};

}  // namespace larder::serving::net
