// Test support: chains of stages of a small model. Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/engine/engine_testing.h"

namespace larder::pipeline::inline engine {

inline model::SynthOptions FourLayers() {
  model::SynthOptions options = AwkwardModel();
  options.shape.layers = 4;
  return options;
}

struct TestStage {
  size_t layers;
  size_t threads = 1;
  std::vector<TestEngineOptions::Attention> attention = {};
};

struct TestChain {
  ChainPlan chain;
  StagePlan ends;
  std::vector<StagePlan> stages;
};

// The model's layers split into stages, all with `slots` slots.
inline TestChain MakeTestChain(const model::GgufFile& file, const std::vector<TestStage>& stages,
                               size_t slots, size_t max_in_flight, size_t max_batch_tokens = 64,
                               size_t kv_tokens = 0,
                               const topology::Topology* described = nullptr) {
  const model::ModelConfig config = model::ReadModelConfig(file);
  const topology::Topology machine = MachineOf(described);
  TestChain test;
  test.chain.cluster = "test";
  test.chain.config = config;
  test.chain.plan_hash = 7;
  test.chain.capacity.context = 768;
  test.chain.capacity.slots = slots;
  test.chain.capacity.max_batch_tokens = max_batch_tokens;
  test.chain.capacity.max_in_flight = max_in_flight;
  PlanOptions agreed;
  agreed.capacity.context = test.chain.capacity.context;
  agreed.capacity.slots = slots;
  agreed.capacity.kv_tokens = kv_tokens;
  agreed.capacity.max_batch_tokens = max_batch_tokens;
  agreed.few_rows = std::min<size_t>(8, max_batch_tokens);
  size_t first = 0;
  for (const TestStage& stage : stages) {
    PlanOptions options = agreed;
    options.threads = stage.threads;
    for (const auto& socket : stage.attention) {
      options.attention.push_back({.name = fmt::format("a{}-{}", first, options.attention.size()),
                                   .cores = machine.PickCores(socket.threads),
                                   .cpus = {},
                                   .slots = socket.slots});
    }
    // A chunk has one number in all stages: that of the separated ones' pools.
    for (const StagePlan& other : test.stages) {
      if (stage.attention.empty() && other.separated()) options.kv_pools = other.kv_pools;
    }
    test.stages.push_back(RunHere(
        MakeStagePlan(model::LayersOf(config, first, stage.layers), machine, options), described));
    test.chain.DivideLike(test.stages.back());
    test.chain.stages.push_back({fmt::format("stage{}", first), first, stage.layers, {}});
    first += stage.layers;
  }
  EXPECT_EQ(first, config.layers);
  agreed.threads = 1;
  test.ends = RunHere(MakeStagePlan(model::EndsOf(config), machine, agreed), described);
  return test;
}

inline std::unique_ptr<Engine> MakeChainEngine(const std::shared_ptr<const model::GgufFile>& file,
                                               const TestChain& test, ChainOptions options = {}) {
  options.wait = kTestWait;
  return std::make_unique<Engine>(file, test.chain, test.ends, test.stages, options);
}

}  // namespace larder::pipeline::engine
