// Constrained decoding: what compiling a schema takes, and the mask of a token, over a vocabulary
// of 128,256 tokens (LARDER_BENCH_VOCAB names a GGUF file with one; without it a made-up vocabulary
// of the same size). A random text of each schema is followed token by token; masks are timed for
// states that were never seen (cold) and again (warm). The baseline is the least that a mask could
// take: writing its bits.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/bench_main.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/tokenizer_data.h"
#include "serving/constraint/constraint.h"
#include "serving/constraint/vocabulary.h"
#include "serving/grammar/grammar.h"

namespace larder::bench {
namespace {

using benchmark::State;
using serving::Automaton;
using serving::Constraint;
using serving::Grammar;
using serving::TokenId;
using serving::Vocabulary;

constexpr size_t kMadeUpTokens = 128'256;

// Words, numbers, indents and punctuation, with the lengths of a real vocabulary.
model::TokenizerData MadeUp() {
  model::TokenizerData data;
  data.source = "made up";
  data.model = "gpt2";
  data.pre = "llama-bpe";
  std::map<std::string, bool> known;
  const auto add = [&](const std::string& bytes) {
    if (known.emplace(bytes, true).second) data.tokens.push_back(model::AlphabetFromBytes(bytes));
  };
  for (int byte = 0; byte < 256; ++byte) add({static_cast<char>(byte)});
  for (int i = 0; i < 1000; ++i) add(std::to_string(i));
  for (size_t n = 2; n < 80; ++n) {
    add(std::string(n, ' '));
    std::string indent(n + 1, ' ');
    indent[0] = '\n';
    add(indent);
  }
  std::mt19937 random(1);
  while (data.tokens.size() + 1 < kMadeUpTokens) {
    const uint32_t kind = random() % 64;
    std::string word;
    if (kind == 2) word += "{\"";
    if (random() % 2 == 0) word += ' ';
    const size_t length = 2 + random() % 9;
    for (size_t i = 0; i < length; ++i) word += static_cast<char>('a' + random() % 26);
    if (kind == 0) word += "\":";
    if (kind == 1) word += "\\n";
    if (kind == 3) word += "\xe3\x81";
    add(word);
  }
  data.tokens.emplace_back("<|eot_id|>");
  data.types.assign(data.tokens.size(), model::TokenType::kNormal);
  data.types.back() = model::TokenType::kControl;
  data.eos = static_cast<TokenId>(data.tokens.size()) - 1;
  return data;
}

const model::Tokenizer& Tokens() {
  static const auto tokenizer = [] {
    const char* path = std::getenv("LARDER_BENCH_VOCAB");
    return path == nullptr ? model::Tokenizer::FromData(MadeUp())
                           : model::Tokenizer::FromGguf(*model::GgufFile::Open(path));
  }();
  return *tokenizer;
}

std::shared_ptr<const Vocabulary> TheVocabulary() {
  static const auto vocabulary = std::make_shared<const Vocabulary>(Tokens(), Tokens().size());
  return vocabulary;
}

struct Named {
  const char* name;
  const char* schema;
};
constexpr Named kSchemas[] = {
    {"any", "true"},
    {"person",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"}},"required":["name","age","email"]})"},
    {"lengths",
     R"({"type":"object","properties":{"title":{"type":"string","minLength":5,"maxLength":80},"body":{"type":"string","maxLength":1000},"tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":10}},"required":["title","body","tags"]})"},
    {"patterns",
     R"({"type":"object","properties":{"slug":{"type":"string","pattern":"^[a-z0-9]+(?:-[a-z0-9]+)*$"},"note":{"type":"string","pattern":"[A-Z]"},"when":{"type":"string","format":"date-time"}},"required":["slug","note","when"]})"},
    {"tree",
     R"({"$defs":{"n":{"type":"object","properties":{"label":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["label","children"]}},"$ref":"#/$defs/n"})"},
    {"choices",
     R"({"type":"array","minItems":30,"items":{"anyOf":[{"type":"object","properties":{"kind":{"const":"text"},"text":{"type":"string"}},"required":["kind","text"]},{"type":"object","properties":{"kind":{"const":"image"},"url":{"type":"string","format":"uri"}},"required":["kind","url"]},{"type":"object","properties":{"kind":{"const":"number"},"value":{"type":"number","minimum":-1000,"maximum":1000}},"required":["kind","value"]}]}})"},
};

std::shared_ptr<const Grammar> Compile(const Named& named) {
  return Grammar::FromJsonSchema(nlohmann::ordered_json::parse(named.schema));
}

void CompileTime(State& state, const Named& named) {
  for (auto _ : state) benchmark::DoNotOptimize(Compile(named));
}

void BuildVocabulary(State& state) {
  Tokens();  // read before the clock runs
  for (auto _ : state) benchmark::DoNotOptimize(Vocabulary(Tokens(), Tokens().size()));
}

void WriteBits(State& state) {
  std::vector<uint64_t> mask(TheVocabulary()->words());
  for (auto _ : state) {
    std::fill(mask.begin(), mask.end(), 0);
    benchmark::DoNotOptimize(mask.data());
    benchmark::ClobberMemory();
  }
}

double Quantile(std::vector<double> values, double q) {
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// One text of up to 300 tokens with a new automaton (cold), or the same text again (warm).
void MaskTime(State& state, const Named& named, bool warm) {
  const auto grammar = Compile(named);
  const auto vocabulary = TheVocabulary();
  std::vector<uint64_t> mask(vocabulary->words());
  std::vector<double> us;
  uint32_t seed = 0;
  for (auto _ : state) {
    const auto automaton = std::make_shared<Automaton>(grammar, vocabulary);
    double seconds = 0;
    for (int pass = 0; pass < (warm ? 2 : 1); ++pass) {
      Constraint constraint(automaton, {});
      std::mt19937 random(seed);
      const bool timed = pass == (warm ? 1 : 0);
      for (int step = 0; step < 300; ++step) {
        const int64_t start = NowNs();
        constraint.Mask(mask);
        const double took = SecondsSince(start);
        if (timed) us.push_back(1e6 * took), seconds += took;
        std::vector<TokenId> allowed;
        for (size_t i = 0; i < vocabulary->size(); ++i) {
          if ((mask[i / 64] >> i % 64 & 1) != 0 && !vocabulary->IsEnd(static_cast<TokenId>(i)))
            allowed.push_back(static_cast<TokenId>(i));
        }
        if (allowed.empty()) break;
        const int64_t accept = NowNs();
        constraint.Accept(allowed[random() % allowed.size()]);
        if (timed) us.back() += 1e6 * SecondsSince(accept);
      }
    }
    ++seed;
    state.SetIterationTime(seconds);
  }
  state.counters["p50 us"] = Quantile(us, 0.5);
  state.counters["p99 us"] = Quantile(us, 0.99);
  state.counters["max us"] = Quantile(us, 1);
  state.counters["tokens"] = static_cast<double>(us.size());
}

void RegisterAll() {
  benchmark::RegisterBenchmark("vocabulary", BuildVocabulary)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("write_bits", WriteBits)->Unit(benchmark::kMicrosecond);
  for (const Named& named : kSchemas) {
    benchmark::RegisterBenchmark((std::string("compile/") + named.name).c_str(), CompileTime, named)
        ->Unit(benchmark::kMicrosecond);
    for (const bool warm : {false, true}) {
      benchmark::RegisterBenchmark(
          (std::string(warm ? "mask_warm/" : "mask_cold/") + named.name).c_str(), MaskTime, named,
          warm)
          ->UseManualTime()
          ->Iterations(10)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  return larder::bench::RunBenchmarks(argc, argv, larder::bench::RegisterAll);
}
