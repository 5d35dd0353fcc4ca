// The engine that the rows of bench_engine measure, on a model from the command line or a synthetic
// one. There is one at a time, since its pool pins the thread that made it.
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
  bool isolated = false;  // the cores run no other work: waiting threads spin
};

inline constexpr size_t kBenchSlots = 32;
inline constexpr size_t kBenchPrompt = 512;
// The prompt, and as many tokens as llama-bench's tg128 generates.
inline constexpr size_t kBenchContext = 640;
inline constexpr size_t kBenchGenerate = 128;

void SetEngineBenchOptions(const EngineBenchOptions& options);
const EngineBenchOptions& GetEngineBenchOptions();
// The model file; writes the synthetic one on first use, and removes it when the program ends.
const std::string& BenchModelPath();

std::unique_ptr<pipeline::Engine> MakeBenchEngine(size_t threads, size_t slots = kBenchSlots);
// Kept between rows until another number of threads is asked for.
pipeline::Engine& BenchEngine(size_t threads);
void DropBenchEngine();

// Multiply-adds of one token outside attention: the weights of all matrices but the embedding
// table.
double WeightsPerToken(const pipeline::StagePlan& plan);

// engine_load.cc: loading, in a separate process.
void RegisterLoad();
// The main function of that process: `--measure-load MODEL THREADS`.
int MeasureLoad(const std::string& model, size_t threads);

// engine_ablation.cc: the same steps with other ways to wait.
void RegisterAblation();

// engine_busy.cc: decode while other processes use the same cores.
void RegisterBusy();

// engine_separation.cc: attention on a separate socket.
void RegisterSeparation();

}  // namespace larder::bench
