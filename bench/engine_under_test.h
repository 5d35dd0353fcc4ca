// The engine that the rows of bench_engine measure: one at a time (its pool pins the thread that made it), on
// a model that the command line names or a synthetic one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/gguf/gguf.h"
#include "pipeline/engine/engine.h"

namespace larder::bench {

struct EngineBenchOptions {
  std::string model;  // a GGUF file; empty: a synthetic one of `shape`
  std::string shape = "bench-24m";
  bool isolated = false;  // spin: the cores are ours alone
};

inline constexpr size_t kBenchSlots = 32;
inline constexpr size_t kBenchPrompt = 512;
inline constexpr size_t kBenchContext =
    640;  // a prompt of 512 and as many tokens again as llama-bench's tg128
inline constexpr size_t kBenchGenerate = 128;

void SetEngineBenchOptions(const EngineBenchOptions& options);
const EngineBenchOptions& GetEngineBenchOptions();
// The model file; writes the synthetic one on first use, and removes it when the program ends.
const std::string& BenchModelPath();

std::unique_ptr<pipeline::Engine> MakeBenchEngine(size_t threads, size_t slots = kBenchSlots);
// Kept from row to row until another number of threads is asked for.
pipeline::Engine& BenchEngine(size_t threads);
void DropBenchEngine();

// Multiply-adds of one token outside attention: the weights of all matrices but the embedding table.
double WeightsPerToken(const pipeline::StagePlan& plan);

// engine_load.cc: loading, in a process of its own.
void RegisterLoad();
// What that process runs: `--measure-load MODEL THREADS`.
int MeasureLoad(const std::string& model, size_t threads);

// engine_ablation.cc: the same steps with other ways of waiting.
void RegisterAblation();

// engine_busy.cc: decode while other work wants the same cores.
void RegisterBusy();

// engine_separation.cc: attention on a socket of its own.
void RegisterSeparation();

}  // namespace larder::bench
