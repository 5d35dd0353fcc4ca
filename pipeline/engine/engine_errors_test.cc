// What Engine refuses, and that a refusal changes nothing.
#include <gtest/gtest.h>

#include "base/error.h"
#include "pipeline/engine/engine_testing.h"

namespace larder::pipeline::inline engine {
namespace {

std::string ErrorOf(Engine& engine, const std::vector<TokenRow>& rows) {
  try {
    engine.Run(rows);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EngineErrorsTest, EachNamesWhatIsWrongAndLosesNothing) {
  const TestModel model(AwkwardModel());
  auto engine = MakeEngine(model.file(), {.slots = 2, .context = 64});
  engine->Run(std::vector<TokenRow>{{5, SlotId(0), 0, false}, {6, SlotId(0), 1, true}});
  EXPECT_NE(ErrorOf(*engine, {{301, SlotId(0), 2, true}}).find("token id 301"), std::string::npos);
  EXPECT_NE(ErrorOf(*engine, {{-1, SlotId(0), 2, true}}).find("token id -1"), std::string::npos);
  EXPECT_NE(ErrorOf(*engine, {{1, SlotId(2), 0, true}}).find("slot 2 does not exist"),
            std::string::npos);
  EXPECT_NE(ErrorOf(*engine, {{1, SlotId(0), 64, true}}).find("context of 64"), std::string::npos);
  EXPECT_NE(ErrorOf(*engine, {{1, SlotId(0), 3, true}}).find("leaves a gap"), std::string::npos);
  EXPECT_NE(
      ErrorOf(*engine, {{1, SlotId(1), 0, true}, {1, SlotId(1), 2, true}}).find("leaves a gap"),
      std::string::npos);
  EXPECT_EQ(engine->length(SlotId(0)), 2u);
  engine->Run(std::vector<TokenRow>{{7, SlotId(0), 2, true}});
  const std::vector<float> after(engine->logits(0).begin(), engine->logits(0).end());
  auto fresh = MakeEngine(model.file(), {.context = 64});
  fresh->Run(std::vector<TokenRow>{
      {5, SlotId(0), 0, false}, {6, SlotId(0), 1, false}, {7, SlotId(0), 2, true}});
  EXPECT_EQ(FirstDifference(after, {fresh->logits(0).begin(), fresh->logits(0).end()}), "");
}

TEST(EngineErrorsTest, OverflowIsAnErrorNotANumber) {
  model::SynthOptions options = AwkwardModel();
  options.standard_deviation = 1e18f;
  const TestModel model(options);
  try {
    MakeEngine(model.file(), {.context = 64});
    FAIL() << "no error";
  } catch (const Error& error) {
    // The loader refuses it first, since a Q8_0 scale beyond f16 is infinite.
    EXPECT_NE(std::string(error.what()).find("finite"), std::string::npos) << error.what();
  }
}

TEST(EngineErrorsTest, KvThatDoesNotFitIsRefusedWithNumbers) {
  const TestModel model(AwkwardModel());
  // Whatever this machine has: a server may have room for it.
  const auto machine = topology::Topology::FromSynthetic("numa:1(memory=8GiB) core:2 pu:1");
  const auto refused = [&](const PlanOptions& options) {
    try {
      MakeStagePlan(model::ReadModelConfig(*model.file()), machine, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string context =
      refused({.threads = 1, .capacity = {.slots = 1000, .context = 1000000}});
  EXPECT_NE(context.find("GB of KV cache"), std::string::npos) << context;
  EXPECT_NE(context.find("largest context that fits"), std::string::npos) << context;
  const std::string slots =
      refused({.threads = 1, .capacity = {.slots = 100000000, .context = 1000000}});
  EXPECT_NE(slots.find("use fewer slots"), std::string::npos) << slots;
}

}  // namespace
}  // namespace larder::pipeline::engine
