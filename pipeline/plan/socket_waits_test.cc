#include "pipeline/plan/socket_waits.h"

#include <gtest/gtest.h>

#include <utility>

#include "model/synth/synth.h"
#include "sync/wait_policies_testing.h"
#include "topology/host.h"

namespace larder::pipeline::inline plan {
namespace {

// The manifest's keys and --isolated determine each socket's way of waiting, equally in all
// processes.
TEST(SocketWaits, IsolatedCoresSpinUnlessTheyAreShared) {
  using Mode = sync::WaitPolicy::Mode;
  const auto machine = topology::Topology::Detect();
  if (machine.cores().size() < 2 || !topology::IsolatedCpus().empty())
    GTEST_SKIP() << "needs two cores of the system's";
  const model::ModelConfig config = model::ConfigOfShape(model::ShapeByName("bench-24m"), "test");
  const auto waits = [&](bool weight, bool attention, size_t attention_core) {
    PlanOptions options{.threads = 1, .cores = {machine.cores()[0].id}};
    options.isolated = weight;
    options.attention.push_back({.name = "attention",
                                 .cores = {machine.cores()[attention_core].id},
                                 .cpus = {},
                                 .slots = 1,
                                 .isolated = attention});
    const SocketWaits result = WaitsOf(MakeStagePlan(config, machine, options), machine);
    EXPECT_EQ(result.attention_mode(), result.attention.at(0).mode);
    return std::pair(result.weight.mode, result.attention_mode());
  };
  EXPECT_EQ(waits(false, false, 1), std::pair(Mode::kAdaptive, Mode::kAdaptive));
  EXPECT_EQ(waits(true, false, 1), std::pair(Mode::kSpin, Mode::kAdaptive));
  EXPECT_EQ(waits(false, true, 1), std::pair(Mode::kAdaptive, Mode::kSpin));
  EXPECT_EQ(waits(true, true, 1), std::pair(Mode::kSpin, Mode::kSpin));
  EXPECT_EQ(waits(true, true, 0), std::pair(Mode::kAdaptive, Mode::kAdaptive)) << "one core";
  EXPECT_EQ((SocketWaits{{}, {sync::kSpin, sync::kSleepAtOnce}}).attention_mode(), Mode::kAdaptive);
}

// So does a thread that stands in for a socket of another server: nobody gave it its core.
TEST(SocketWaits, StandInsSleep) {
  using Mode = sync::WaitPolicy::Mode;
  const auto machine = topology::Topology::Detect();
  const std::vector<CoreId> cores{machine.cores()[0].id};
  PlanOptions options{.threads = 1, .cores = cores, .isolated = true};
  options.attention.push_back({.name = "attention",
                               .cores = cores,
                               .cpus = machine.CpusOf(cores),
                               .slots = 1,
                               .isolated = true,
                               .elsewhere = ThreadsOn(machine, cores, machine.CpusOf(cores))});
  const StagePlan plan = MakeStagePlan(
      model::ConfigOfShape(model::ShapeByName("bench-24m"), "test"), machine, options);
  const SocketWaits weight = WaitsOf(plan, machine),
                    attention = WaitsOf(plan, machine, AttentionId(0));
  EXPECT_EQ(weight.weight.mode, Mode::kSpin) << "the core of the same number is another one";
  EXPECT_EQ(weight.attention.at(0).mode, Mode::kAdaptive);
  EXPECT_EQ(attention.weight.mode, Mode::kAdaptive);
  EXPECT_EQ(attention.attention.at(0).mode, Mode::kSpin);
}

}  // namespace
}  // namespace larder::pipeline::plan
