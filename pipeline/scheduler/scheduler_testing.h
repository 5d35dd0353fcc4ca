// Test support: sequences made from wishes, and an intake that hands them out. Included by tests
// only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pipeline/sequences/request.h"

namespace larder::pipeline::inline scheduler {

inline constexpr size_t kVocab = 301, kSlots = 3;  // for tests that make engines

// The result of a sequence.
struct Outcome {
  std::vector<int32_t> tokens;
  size_t ended_as = 0;  // the how-manieth that ended, from 1
  std::optional<SequenceEnd> end;
  std::string why;
  size_t reused = 0;
  SlotId slot;  // the last one
  int admissions = 0;
  std::vector<size_t> computed;  // tokens of the prompt, as it was told
  size_t prepared = 0;           // tokens chosen by Prepare
  size_t sat_out = 0;            // looks at it before it was ready
  size_t drafts = 0;             // times that it drafted something
};

struct Wish {
  std::vector<int32_t> prompt;
  size_t most = 10;
  uint32_t seed = 0;  // 0: the likeliest token; else sampled from its own random stream
  size_t cancel_after = SIZE_MAX;  // tokens
  size_t arrives = 0;              // in steps
  uint64_t tenant = 0;
  bool background = false;
  std::optional<SlotId> slot = {};
  uint32_t late = 0;  // before each token it is not ready for up to so many looks
  // What it drafts behind the tokens that it has: those of this text at the same places, up to
  // most_drafts at once, but each wrong_every-th wrong. Null: it drafts nothing.
  const std::vector<int32_t>* draft = nullptr;
  size_t most_drafts = 4, wrong_every = SIZE_MAX;
};

class TestSequence : public Sequence {
 public:
  // ended: how many have ended, of all that share it; may be null.
  TestSequence(const Wish& wish, Outcome& outcome, size_t* ended = nullptr)
      : wish_(wish), outcome_(outcome), ended_(ended), random_(wish.seed) {}
  std::span<const int32_t> prompt() const override { return wish_.prompt; }
  uint64_t tenant() const override { return wish_.tenant; }
  bool background() const override { return wish_.background; }
  bool cancelled() const override { return outcome_.tokens.size() >= wish_.cancel_after; }
  void Admitted(size_t reused) override {
    outcome_.reused = reused;
    ++outcome_.admissions;
  }
  std::optional<SlotId> slot() const override { return wish_.slot; }
  void InSlot(SlotId slot) override { outcome_.slot = slot; }
  void Computed(size_t tokens) override {
    EXPECT_TRUE(outcome_.tokens.empty());
    outcome_.computed.push_back(tokens);
  }
  bool ready(uint64_t) override {
    if (is_ready_ || wish_.late == 0) return true;
    if (!looks_) looks_ = late_random_() % (wish_.late + 1);
    is_ready_ = (*looks_)-- == 0;
    if (is_ready_) looks_.reset();
    outcome_.sat_out += !is_ready_;
    return is_ready_;
  }
  std::optional<int32_t> Next(std::span<const float> logits) override {
    EXPECT_TRUE(is_ready_ || wish_.late == 0) << "asked before it is ready";
    is_ready_ = false;
    if (prepared_ == nullptr) token_ = Choose(logits);
    EXPECT_TRUE(prepared_ == nullptr || prepared_ == logits.data()) << "other logits than prepared";
    prepared_ = nullptr;
    outcome_.tokens.push_back(token_);
    if (outcome_.tokens.size() == wish_.most) return std::nullopt;
    return token_;
  }
  void Prepare(std::span<const float> logits) override {
    EXPECT_EQ(prepared_, nullptr) << "prepared twice";
    token_ = Choose(logits);
    prepared_ = logits.data();
    ++outcome_.prepared;
  }
  std::span<const int32_t> Draft(size_t most) override {
    if (wish_.draft == nullptr) return {};
    const size_t has = std::min(outcome_.tokens.size(), wish_.draft->size());
    const size_t count = std::min({most, wish_.most_drafts, wish_.draft->size() - has});
    draft_.assign(wish_.draft->begin() + static_cast<std::ptrdiff_t>(has),
                  wish_.draft->begin() + static_cast<std::ptrdiff_t>(has + count));
    for (size_t i = 0; i < count; ++i) {
      if ((has + i) % wish_.wrong_every == wish_.wrong_every - 1) draft_[i] = draft_[i] == 0;
    }
    outcome_.drafts += count > 0;
    return draft_;
  }
  void Ended(SequenceEnd end, const std::string& why) override {
    EXPECT_FALSE(outcome_.end.has_value()) << "told of the end twice";
    outcome_.end = end;
    if (ended_ != nullptr) outcome_.ended_as = ++*ended_;
    outcome_.why = why;
  }

 private:
  int32_t Choose(std::span<const float> logits) {
    size_t at = 0;
    if (wish_.seed == 0) {
      at = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    } else {  // the token depends on every bit of the logits and on every draw
      uint64_t sum = random_();
      for (const float logit : logits) {
        uint32_t bits;
        std::memcpy(&bits, &logit, sizeof bits);
        sum = sum * 6364136223846793005u + bits;
      }
      at = (sum >> 33) % logits.size();
    }
    return static_cast<int32_t>(at);
  }

  const Wish& wish_;
  Outcome& outcome_;
  size_t* const ended_;
  std::mt19937_64 random_;
  int32_t token_ = 0;
  const float* prepared_ = nullptr;
  std::minstd_rand late_random_{1 + static_cast<unsigned>(wish_.prompt.size())};
  std::optional<uint32_t> looks_;
  std::vector<int32_t> draft_;
  bool is_ready_ = false;
};

// Hands out each wish at its step.
class TestIntake : public Intake {
 public:
  explicit TestIntake(const std::vector<Wish>& wishes) : wishes_(wishes), outcomes(wishes.size()) {
    for (size_t i = 0; i < wishes.size(); ++i) order_.push_back(i);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return wishes[a].arrives < wishes[b].arrives; });
  }
  std::unique_ptr<Sequence> Take() override {
    if (next_ == order_.size() || wishes_[order_[next_]].arrives > step_) return nullptr;
    const size_t i = order_[next_++];
    return std::make_unique<TestSequence>(wishes_[i], outcomes[i], &ended_);
  }
  void StepDone() override { ++step_; }
  bool WaitForWork(int /*most_ms*/) override {
    if (next_ == order_.size()) return false;
    step_ = std::max(step_, wishes_[order_[next_]].arrives);
    return true;
  }

 private:
  const std::vector<Wish>& wishes_;
  std::vector<size_t> order_;
  size_t next_ = 0, step_ = 0, ended_ = 0;

 public:
  std::vector<Outcome> outcomes;
};

}  // namespace larder::pipeline::scheduler
