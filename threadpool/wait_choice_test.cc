#include "threadpool/wait_choice.h"

#include <gtest/gtest.h>

#include "topology/host.h"

namespace larder::threadpool {
namespace {

using Mode = sync::WaitPolicy::Mode;

class WaitChoice : public testing::Test {
 protected:
  const topology::Topology machine_ = topology::Topology::Detect();
  const std::vector<CpuId> own_ = machine_.CpusOf(machine_.PickCores(1));
};

TEST_F(WaitChoice, IsolatedCoresSpin) {
  EXPECT_EQ(ChooseWaitPolicy(machine_, own_, true).mode, Mode::kSpin);
}

TEST_F(WaitChoice, SharedCoresSpinALittleThenSleep) {
  if (!topology::IsolatedCpus().empty())
    GTEST_SKIP() << "this machine has isolated CPUs, which spin";
  const sync::WaitPolicy policy = ChooseWaitPolicy(machine_, own_, false);
  EXPECT_EQ(policy.mode, Mode::kAdaptive);
  EXPECT_GT(policy.spin_iterations, 0u);
  EXPECT_NE(Describe(policy).find("then sleep"), std::string::npos);
}

// Even where the user claims the cores: two spinners on one core would wait for the scheduler.
TEST_F(WaitChoice, OvercommittedThreadsHardlySpin) {
  const std::vector<CpuId> twice = {own_[0], own_[0]};
  const sync::WaitPolicy policy = ChooseWaitPolicy(machine_, twice, true);
  EXPECT_EQ(policy.mode, Mode::kAdaptive);
  EXPECT_LT(policy.spin_iterations, sync::SpinIterationsFor(5'000));
  const std::vector<CpuId> unpinned(machine_.cores().size() + 1);
  EXPECT_EQ(ChooseWaitPolicy(machine_, unpinned, true).mode, Mode::kAdaptive);
}

}  // namespace
}  // namespace larder::threadpool
