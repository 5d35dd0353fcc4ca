// Loading: its time against reading the file from the page cache, and the process's peak memory
// against the model and its KV cache. Measured in a separate process (this program started again)
// from main() on, including kernel generation and its checks, as a user experiences it.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/engine/engine_under_test.h"
#include "bench/ratio.h"

namespace larder::bench {
namespace {

using benchmark::State;

// The seconds that one thread takes to read the model's files once into a small buffer, as `cat
// FILE > /dev/null` does, without a second copy or new memory. The best of three; the first fills
// the page cache.
double ReadFileSeconds(const std::string& model) {
  const auto file = model::GgufFile::Open(model);
  std::vector<char> buffer(size_t{1} << 20);
  double best = 1e9;
  for (int pass = 0; pass < 4; ++pass) {
    const int64_t start = NowNs();
    for (const auto& part : file->parts()) {
      const int fd = open(part.path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) throw Error("{}: cannot be opened", part.path);
      while (read(fd, buffer.data(), buffer.size()) > 0) benchmark::DoNotOptimize(buffer.data());
      close(fd);
    }
    if (pass > 0) best = std::min(best, SecondsSince(start));
  }
  return best;
}

// A value of /proc/self/status, such as "VmHWM", in bytes.
double StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

nlohmann::json RunChild(size_t threads) {
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
    throw Error("/proc/self/exe: cannot be read; is /proc mounted?");
  int out[2];
  if (pipe(out) != 0) throw Error("pipe: no descriptor left");
  const std::string count = std::to_string(threads);
  const pid_t child = fork();
  if (child < 0) throw Error("fork: no process left");
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    execl(self, self, "--measure-load", BenchModelPath().c_str(), count.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(out[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(out[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(out[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) throw Error("the loading process failed (status {})", status);
  return nlohmann::json::parse(text);
}

void Load(State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  BenchModelPath();
  DropBenchEngine();  // frees its memory and ends its threads
  double read_s = ReadFileSeconds(BenchModelPath());
  nlohmann::json child;
  Stopwatch watch(state);
  for (auto _ : state) {
    child = RunChild(threads);
    watch.Add(child.at("load_s").get<double>());
  }
  read_s = std::min(read_s, ReadFileSeconds(BenchModelPath()));
  const double model = child.at("model_bytes"), kv = child.at("kv_bytes"),
               peak = child.at("peak_bytes");
  state.counters["load s"] = watch.best_s();
  state.counters["read file s"] = read_s;
  state.counters["load / read"] = watch.best_s() / read_s;
  state.counters["model MB"] = model * 1e-6;
  state.counters["KV MB"] = kv * 1e-6;
  state.counters["peak MB"] = peak * 1e-6;
  state.counters["peak / (model+KV)"] = peak / (model + kv);
}

}  // namespace

int MeasureLoad(const std::string& model, size_t threads) {
  try {
    EngineBenchOptions options;
    options.model = model;
    SetEngineBenchOptions(options);
    const int64_t start = NowNs();
    const std::unique_ptr<pipeline::Engine> engine = MakeBenchEngine(threads, 1);
    const double load_s = SecondsSince(start);
    // Fills the one slot, so that the whole KV cache has been touched when the peak is read.
    std::vector<pipeline::TokenRow> rows(kBenchContext);
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] = {static_cast<int32_t>(i % engine->plan().config.vocab), SlotId(0),
                 static_cast<uint32_t>(i), i + 1 == rows.size()};
    engine->Run(rows);
    const nlohmann::json result = {{"load_s", load_s},
                                   {"model_bytes", model::GgufFile::Open(model)->file_bytes()},
                                   {"kv_bytes", engine->plan().kv_bytes},
                                   {"peak_bytes", StatusBytes("VmHWM")}};
    std::printf("%s\n", result.dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_engine: %s\n", error.what());
    return 1;
  }
}

void RegisterLoad() {
  benchmark::RegisterBenchmark("load", Load)
      ->ArgName("threads")
      ->Arg(static_cast<int64_t>(Cores()))
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace larder::bench
