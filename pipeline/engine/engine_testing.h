// Test support: small synthetic models and ways to run them. Included by tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "model/gguf/gguf.h"
#include "model/synth/synth.h"
#include "pipeline/engine/engine.h"
#include "topology/topology.h"

namespace larder::pipeline::inline engine {

// A GGUF file that is deleted with this object (file() stays open while it is referenced).
class TestModel {
 public:
  explicit TestModel(const model::SynthOptions& options) {
    model::WriteSynth(options, folder_ / "model.gguf");
    file_ = model::GgufFile::Open(folder_ / "model.gguf");
  }
  const std::shared_ptr<const model::GgufFile>& file() const { return file_; }

 private:
  TemporaryFolder folder_;
  std::shared_ptr<const model::GgufFile> file_;
};

struct TestEngineOptions {
  size_t threads = 1;
  kernels::Isa isa = kernels::BestIsa();
  std::optional<kernels::KernelTuning> tuning = {};  // nullopt: isa's default
  size_t slots = 1;
  size_t kv_tokens = 0;  // 0: a full context for each slot
  size_t context = 768;
  size_t max_batch_tokens = 128;
  size_t few_rows = 32;
  // Attention sockets of a separated stage; empty: colocated.
  struct Attention {
    size_t threads = 1;
    size_t slots = 1;
    std::vector<CoreId> cores = {};  // empty: as the topology picks them
  };
  std::vector<Attention> attention = {};
  std::string processes = {};  // the cluster's name if attention sockets are processes; empty:
                               // threads
  std::optional<bool> expert_shares = {};       // StagePlan's; nullopt: as the Plan chooses
  const topology::Topology* machine = nullptr;  // a described one; null: this one
};

inline topology::Topology MachineOf(const topology::Topology* described) {
  return described != nullptr ? *described : topology::Topology::Detect();
}

// What was planned on a described machine runs on this one: its threads share the cores there are.
// Their L3 groups and NUMA nodes stay the described ones.
inline StagePlan RunHere(StagePlan plan, const topology::Topology* described) {
  if (described == nullptr) return plan;
  for (PlanThread& thread : plan.threads) thread.cpu = CpuId{};
  for (PlanAttentionSocket& socket : plan.attention)
    for (PlanThread& thread : socket.threads) thread.cpu = CpuId{};
  return plan;
}

inline StagePlan MakeTestPlan(const model::GgufFile& file, const TestEngineOptions& options) {
  const topology::Topology topology = MachineOf(options.machine);
  PlanOptions plan;
  plan.threads = options.threads;
  plan.isa = options.isa;
  plan.tuning = options.tuning;
  plan.capacity.slots = options.slots;
  plan.capacity.kv_tokens = options.kv_tokens;
  plan.capacity.context = options.context;
  plan.capacity.max_batch_tokens = options.max_batch_tokens;
  plan.few_rows = options.few_rows;
  for (const auto& socket : options.attention) {
    plan.attention.push_back(
        {.name = "attention" + std::to_string(plan.attention.size()),
         .cores = socket.cores.empty() ? topology.PickCores(socket.threads) : socket.cores,
         .cpus = {},
         .slots = socket.slots});
  }
  StagePlan made = MakeStagePlan(model::ReadModelConfig(file), topology, plan);
  if (options.expert_shares) made.expert_shares = *options.expert_shares;
  return RunHere(std::move(made), options.machine);
}

// tests share their cores
inline constexpr sync::WaitPolicy kTestWait{sync::WaitPolicy::Mode::kAdaptive, 100};

inline std::unique_ptr<Engine> MakeEngine(const std::shared_ptr<const model::GgufFile>& file,
                                          const TestEngineOptions& options) {
  ChainOptions stage;
  stage.wait = kTestWait;
  stage.processes = options.processes;
  return std::make_unique<Engine>(file, MakeTestPlan(*file, options), stage);
}

inline std::vector<int32_t> TestTokens(size_t n, size_t vocab, uint32_t seed = 1) {
  std::vector<int32_t> tokens;
  uint32_t state = seed * 2654435761u + 12345u;
  for (size_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((state >> 8) % vocab));
  }
  return tokens;
}

// Logits of every position of `tokens` in `slot`, run `chunk` rows at a time: [tokens][vocab].
inline std::vector<float> RunChunks(Engine& engine, const std::vector<int32_t>& tokens,
                                    size_t chunk, SlotId slot = SlotId(0)) {
  const size_t vocab = engine.plan().config.vocab;
  std::vector<float> all;
  engine.Reset(slot);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    std::vector<TokenRow> rows;
    for (size_t i = begin; i < std::min(begin + chunk, tokens.size()); ++i) {
      rows.push_back({tokens[i], slot, static_cast<uint32_t>(i), true});
    }
    engine.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto logits = engine.logits(i);
      all.insert(all.end(), logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocab));
    }
  }
  return all;
}

// Describes the first element whose bits differ; "" if none does. Equal NaN bits are equal; -0
// differs from 0.
inline std::string FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return fmt::format("{} and {} values", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
      return fmt::format("element {}: {:a} and {:a}", i, a[i], b[i]);
  }
  return "";
}

// An awkward shape: 3 query heads per KV head, ffn and vocab not multiples of 32 or 16, F32 rows
// that end in a partial block.
inline model::SynthOptions AwkwardModel() {
  model::SynthOptions options;
  options.shape = {.architecture = "llama",
                   .layers = 2,
                   .dim = 120,
                   .ffn = 172,
                   .heads = 6,
                   .kv_heads = 2,
                   .head_size = 20,
                   .vocab = 301,
                   .context = 1024,
                   .tied = true};
  options.type = model::TensorType::kF32;
  return options;
}

// Micro-batches of slot 0 that go on where the one before ended, cut where the caller says. The
// wanted rows of each, else the first, the middle and the last one, want logits, which must be the
// baseline's.
class CutMicroBatches {
 public:
  // tokens: of one sequence; baseline: [tokens][vocab]. All must outlive it.
  CutMicroBatches(Stage& stage, const std::vector<int32_t>& tokens,
                  const std::vector<float>& baseline)
      : stage_(stage),
        tokens_(tokens),
        baseline_(baseline),
        slots_(tokens.size(), SlotId(0)),
        positions_(tokens.size()) {
    std::iota(positions_.begin(), positions_.end(), 0u);
  }
  size_t done() const { return done_; }  // rows

  void Run(uint32_t rows, uint32_t first_half) { Run(rows, first_half, {0, rows / 2, rows - 1}); }
  void Run(uint32_t rows, uint32_t first_half, const std::vector<uint32_t>& wanted) {
    model::BatchRows batch{.rows = rows,
                           .token = tokens_.data() + done_,
                           .slot = slots_.data(),
                           .position = positions_.data() + done_,
                           .logit_rows = static_cast<uint32_t>(wanted.size()),
                           .logit_row = wanted.data()};
    stage_.Execute(batch, first_half);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto logits = stage_.packed().logits(i);
      const auto at =
          baseline_.begin() + static_cast<std::ptrdiff_t>((done_ + wanted[i]) * logits.size());
      ASSERT_EQ(FirstDifference({logits.begin(), logits.end()},
                                {at, at + static_cast<std::ptrdiff_t>(logits.size())}),
                "")
          << rows << " rows after " << done_ << ", first half " << first_half << ", row "
          << wanted[i];
    }
    done_ += rows;
  }

 private:
  Stage& stage_;
  const std::vector<int32_t>& tokens_;
  const std::vector<float>& baseline_;
  const std::vector<SlotId> slots_;
  std::vector<uint32_t> positions_;
  size_t done_ = 0;
};

}  // namespace larder::pipeline::engine
