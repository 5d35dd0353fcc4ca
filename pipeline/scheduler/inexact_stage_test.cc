// A stage that computes something near the arithmetic's bits, not these bits: nobody else goes on
// with what it has computed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error_testing.h"
#include "base/temporary_folder_testing.h"
#include "pipeline/chain/stage_socket.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/kv_store/kv_store.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"
#include "pipeline/stage/stage.h"
#include "topology/scattered_bytes.h"

namespace larder::pipeline::inline scheduler {
namespace {

// Another stage, whose keys and values it changes a little where they are in this process.
class InexactStage final : public Stage {
 public:
  explicit InexactStage(std::unique_ptr<Stage> of) : of_(std::move(of)) {}
  bool exact() const override { return false; }
  void Execute(model::BatchRows& batch, uint32_t first_half) override {
    of_->Execute(batch, first_half);
    if (const auto memory = KvMemory(0); !memory.empty()) memory.pieces()[0][0] ^= 1;
  }
  PackedWeights& packed() override { return of_->packed(); }
  const PackedWeights& packed() const override { return std::as_const(*of_).packed(); }
  const SocketStatus& attention_status(AttentionId socket) const override {
    return of_->attention_status(socket);
  }
  std::optional<AttentionId> HungAttention() const override { return of_->HungAttention(); }
  void Order(std::span<const KvOrder> orders) override { of_->Order(orders); }
  void AbandonOrders() override { of_->AbandonOrders(); }
  KvReport kv_report(AttentionId socket) const override { return of_->kv_report(socket); }
  topology::ScatteredBytes KvMemory(uint32_t chunk) override { return of_->KvMemory(chunk); }

 private:
  const std::unique_ptr<Stage> of_;
};

ChainOptions TestOptions() {
  ChainOptions options;
  options.wait = kTestWait;
  return options;
}

// Exact stages go on with what each other has stored; an inexact one and they have files apart.
TEST(InexactStageTest, WhatItHasStoredIsItsOwn) {
  const TestModel model(AwkwardModel());
  const TemporaryFolder folder;
  const StagePlan plan = MakeTestPlan(*model.file(), {});
  const std::vector<Wish> wishes = {{.prompt = TestTokens(600, kVocab), .most = 4}};
  // Tokens that an engine with this stage reuses of the prompt; it stores what it has computed.
  const auto reused_by = [&](bool exact) {
    std::unique_ptr<Stage> stage = MakeStage(plan, *model.file(), TestOptions());
    if (!exact) stage = std::make_unique<InexactStage>(std::move(stage));
    Engine engine(model.file(), std::move(stage), TestOptions());
    KvStore store({.folder = folder.path(), .most_bytes = 1 << 30}, "socket",
                  engine.identity(plan.identity()), engine.kv().shape(), engine.kv_channel());
    Scheduler scheduler(engine, {.tier = &store.tier()});
    TestIntake intake(wishes);
    scheduler.Run(intake);
    EXPECT_EQ(intake.outcomes[0].tokens.size(), 4u);
    return intake.outcomes[0].reused;
  };
  EXPECT_EQ(reused_by(true), 0u);
  EXPECT_EQ(reused_by(true), 512u);
  EXPECT_EQ(reused_by(false), 0u);
  EXPECT_EQ(reused_by(false), 512u);
  EXPECT_EQ(reused_by(true), 512u) << "its files are as they were";
}

TEST(InexactStageTest, NoChainTakesIt) {
  const TestModel model(FourLayers());
  const TestChain test = MakeTestChain(*model.file(), {{2}, {2}}, 1, 2);
  const auto make = [&] { return MakeStage(test.stages[0], *model.file(), TestOptions()); };
  ChainPlan chain = test.chain;
  chain.stages[0].endpoint = {.transport = rdma::Transport::kSharedMemory,
                              .name = fmt::format("larder-inexact-{}", getpid())};
  SocketStatus status;
  { const StageSocket taken(chain, 0, make(), TestOptions(), status); }
  EXPECT_EQ(ErrorOf([&] {
              StageSocket(chain, 0, std::make_unique<InexactStage>(make()), TestOptions(), status);
            }),
            "stage stage0: its results are not exact, and a chain, which may go on after a loss in "
            "the middle of a sequence, needs the same bits each time; run the whole model as one "
            "stage");
}

}  // namespace
}  // namespace larder::pipeline::scheduler
