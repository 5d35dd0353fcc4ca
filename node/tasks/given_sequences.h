// Sequences that are all known beforehand, for commands that use the scheduler by themselves: its
// Run ends when they have ended.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "pipeline/sequences/request.h"

namespace larder::node::inline tasks {

class GivenSequences : public pipeline::Intake {
 public:
  void Add(std::unique_ptr<pipeline::Sequence> sequence) {
    waiting_.push_back(std::move(sequence));
  }

  std::unique_ptr<pipeline::Sequence> Take() override {
    if (waiting_.empty()) return nullptr;
    auto sequence = std::move(waiting_.front());
    waiting_.pop_front();
    return sequence;
  }
  void StepDone() override {}
  bool WaitForWork(int /*most_ms*/) override { return false; }

 private:
  std::deque<std::unique_ptr<pipeline::Sequence>> waiting_;
};

}  // namespace larder::node::tasks
