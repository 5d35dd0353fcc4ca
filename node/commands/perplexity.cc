// `larder perplexity`: how well a model predicts a text, by llama.cpp's method: the text is split
// into chunks of one context each, and the second half of each chunk is scored. --ids and --logits
// take one sequence from position 0 and score all of it, and so does --logprobs. Tokens are scored
// by the log-probabilities that `larder serve` shows its clients, to the bit.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"
#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/options/progress.h"
#include "node/options/terminal.h"
#include "node/service/signals.h"
#include "serving/generation/logprobs.h"

namespace larder::node::inline commands {
namespace {

using model::TokenId;

constexpr size_t kDefaultChunk = 512;  // llama.cpp's default

struct PerplexityOptions {
  ModelOptions model;
  std::string text_file, ids_file, logits_file, logprobs_file;
  size_t chunks = 0;  // 0: all
};

// White space, and the brackets and commas in the output of `larder tokenize --ids`.
bool IsSeparator(char c) {
  return std::isspace(static_cast<unsigned char>(c)) || c == ',' || c == '[' || c == ']';
}

std::vector<TokenId> ParseIds(const std::string& text, const std::string& path) {
  std::vector<TokenId> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  for (;;) {
    while (at != end && IsSeparator(*at)) ++at;
    if (at == end) return ids;
    TokenId id = 0;
    const auto [stop, failed] = std::from_chars(at, end, id);
    if (failed != std::errc() || (stop != end && !IsSeparator(*stop))) {
      throw Error(
          "{}: after {} token ids comes something else; expected only numbers separated by spaces",
          path, ids.size());
    }
    ids.push_back(id);
    at = stop;
  }
}

// A file that is asked for; with an empty path nothing is written.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path) : path_(path) {
    if (path.empty()) return;
    file_ = std::fopen(path.c_str(), "wb");
    if (file_ == nullptr) throw Error("{}: {}", path, std::strerror(errno));
  }
  ~OutputFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void Write(const void* bytes, size_t count) {
    if (file_ != nullptr && std::fwrite(bytes, 1, count, file_) != count) Fail();
  }
  void Close() {
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0) Fail();
  }

 private:
  [[noreturn]] void Fail() const { throw Error("{}: {}", path_, std::strerror(errno)); }
  std::string path_;
  std::FILE* file_ = nullptr;
};

// Sum and sum of squares of negative log likelihoods.
struct Score {
  double sum = 0, squares = 0;
  size_t count = 0;
  void Add(float logprob) {
    const double nll = -static_cast<double>(logprob);
    sum += nll;
    squares += nll * nll;
    ++count;
  }
  double perplexity() const { return std::exp(sum / static_cast<double>(count)); }
  // The standard error of the mean, propagated through exp.
  double error() const {
    if (count < 2) return 0;
    const auto n = static_cast<double>(count);
    const double mean = sum / n;
    return std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1)) * perplexity();
  }
};

// Runs `tokens` from position 0 of slot 0 and passes the logits of positions >= first to `take`.
// False if interrupted.
bool RunSequence(pipeline::Engine& engine, std::span<const TokenId> tokens, size_t first,
                 const std::function<void(size_t position, std::span<const float> logits)>& take) {
  engine.Reset(SlotId(0));
  const size_t step = std::min(engine.max_logits(), engine.max_batch_tokens());
  std::vector<pipeline::TokenRow> rows;
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    if (Interrupts() > 0) return false;
    rows.clear();
    const size_t end = std::min(tokens.size(), begin + step);
    for (size_t i = begin; i < end; ++i)
      rows.push_back({tokens[i], SlotId(0), static_cast<uint32_t>(i), i >= first});
    engine.Run(rows);
    for (size_t i = std::max(begin, first), k = 0; i < end; ++i, ++k) {
      take(i, engine.logits(k).first(engine.plan().config.vocab));
    }
  }
  return true;
}

int PrintFinal(const Score& score, bool finished) {
  if (score.count == 0) return finished ? 0 : InterruptExitCode();
  fmt::print("Final estimate: PPL = {:.4f} +/- {:.5f} over {} tokens{}\n", score.perplexity(),
             score.error(), score.count, finished ? "" : " (interrupted)");
  return finished ? 0 : InterruptExitCode();
}

int ScoreOneSequence(pipeline::Engine& engine, std::span<const TokenId> tokens,
                     const PerplexityOptions& o) {
  OutputFile logits_file(o.logits_file), logprobs_file(o.logprobs_file);
  Score score;
  Progress progress("scoring");
  const bool finished =
      RunSequence(engine, tokens, 0, [&](size_t position, std::span<const float> logits) {
        logits_file.Write(logits.data(), logits.size_bytes());
        if (position + 1 < tokens.size()) {
          const float logprob = serving::LogprobsOf(logits, tokens[position + 1], 0).logprob;
          // Enough digits to be the same number again.
          const std::string line = fmt::format("{:.9g}\n", logprob);
          logprobs_file.Write(line.data(), line.size());
          score.Add(logprob);
        }
        progress.Update(position + 1, tokens.size(), false);
      });
  logits_file.Close();
  logprobs_file.Close();
  return PrintFinal(score, finished);
}

int ScoreChunks(pipeline::Engine& engine, std::vector<TokenId> tokens, size_t chunk, size_t chunks,
                TokenId bos) {
  Score score;
  bool finished = true;
  for (size_t c = 0; c < chunks && finished; ++c) {
    const std::span<TokenId> part(tokens.data() + c * chunk, chunk);
    if (bos >= 0) part[0] = bos;  // every chunk begins like a text
    // The last position predicts a token of the next chunk, so it is not scored.
    finished =
        RunSequence(engine, part, chunk / 2, [&](size_t position, std::span<const float> logits) {
          if (position + 1 < chunk)
            score.Add(serving::LogprobsOf(logits, part[position + 1], 0).logprob);
        });
    if (!finished) break;
    fmt::print("[{}]{:.4f},", c + 1, score.perplexity());
    std::fflush(stdout);
  }
  fmt::print("\n");
  return PrintFinal(score, finished);
}

int Run(PerplexityOptions& o) {
  if (o.text_file.empty() == o.ids_file.empty())
    throw CLI::ValidationError("perplexity", "give either -f TEXT or --ids FILE");
  const auto where = LoadManifest(o.model);
  const auto file = model::GgufFile::Open(ModelPath(o.model, where));
  std::vector<TokenId> tokens;
  TokenId bos = -1;
  if (!o.ids_file.empty()) {
    tokens = ParseIds(ReadFile(o.ids_file), o.ids_file);
  } else {
    const auto tokenizer = model::Tokenizer::FromGguf(*file);
    if (tokenizer->wants_bos()) bos = tokenizer->bos();
    tokens =
        tokenizer->Encode(ReadFile(o.text_file), tokenizer->wants_bos(), /*parse_special=*/false);
  }
  const std::string& source = o.ids_file.empty() ? o.text_file : o.ids_file;
  const bool one_sequence =
      !o.ids_file.empty() || !o.logits_file.empty() || !o.logprobs_file.empty();
  if (one_sequence) {
    if (tokens.empty()) throw Error("{}: it contains no tokens", source);
    if (o.model.capacity.context != 0 && o.model.capacity.context < tokens.size()) {
      throw Error(
          "{}: its {} tokens do not fit the context of {} tokens; leave -c out or use -c {}",
          source, tokens.size(), o.model.capacity.context, tokens.size());
    }
    o.model.capacity.context = std::max(o.model.capacity.context, tokens.size());
  } else {
    if (o.model.capacity.context == 0) o.model.capacity.context = kDefaultChunk;
    if (o.model.capacity.context < 4)
      throw CLI::ValidationError("-c", "a chunk of at least 4 tokens is needed");
    if (tokens.size() < 2 * o.model.capacity.context) {
      throw Error(
          "{}: {} tokens are too few for a context of {}; at least {} are needed, or a smaller -c",
          source, tokens.size(), o.model.capacity.context, 2 * o.model.capacity.context);
    }
  }
  const PlannedModel planned =
      PlanModel(*file, where, ResolveTopology(o.model), ToPlanOptions(o.model), o.model);
  const auto engine = LoadEngine(file, planned, o.model);
  const InterruptGuard guard;
  if (one_sequence) return ScoreOneSequence(*engine, tokens, o);
  size_t chunks = tokens.size() / o.model.capacity.context;
  if (o.chunks != 0) chunks = std::min(chunks, o.chunks);
  fmt::print("{} chunks of {} tokens\n", chunks, o.model.capacity.context);
  return ScoreChunks(*engine, std::move(tokens), o.model.capacity.context, chunks, bos);
}

}  // namespace

Command AddPerplexity(CLI::App& program) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* command =
      program.add_subcommand("perplexity", "score a text, or write the logits of every position");
  command->add_option("-f,--file", o->text_file, "the text (-: standard input)")->type_name("FILE");
  command->add_option("--ids", o->ids_file, "token ids separated by spaces, run as one sequence")
      ->type_name("FILE");
  command
      ->add_option("--logits", o->logits_file,
                   "write float32 logits, [position][vocab], of one sequence")
      ->type_name("FILE");
  command
      ->add_option("--logprobs", o->logprobs_file,
                   "write the log-probability of each token but the first of one sequence, a line "
                   "each")
      ->type_name("FILE");
  AddCount(*command, "--chunks", o->chunks,
           "score only this many chunks of -c tokens (default: all)");
  AddModelOptions(*command, o->model, {});
  command->get_option("--ctx-size")
      ->description("tokens per chunk (default: 512; with --ids, --logits or --logprobs: all)");
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
