#include "node/tasks/generate.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "node/service/signals.h"

namespace larder::node {
namespace {

double PerSecond(size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }

std::string ReasonText(const GenerationStats& stats, size_t context) {
  switch (stats.reason) {
    case StopReason::kEndOfText:
      return "end of text";
    case StopReason::kLength:
      return "as many tokens as asked for (-n)";
    case StopReason::kContextFull:
      return fmt::format("the context of {} tokens is full; a larger -c makes room", context);
    case StopReason::kStopString:
      return fmt::format("stop string '{}'", stats.stop_string);
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "";
}

}  // namespace

double GenerationStats::prompt_tokens_per_s() const {
  return PerSecond(prompt_tokens - cached_tokens, prefill_s);
}
double GenerationStats::decode_tokens_per_s() const { return PerSecond(decode_steps, decode_s); }
double GenerationStats::tpot_ms() const {
  return decode_steps > 0 ? 1e3 * decode_s / static_cast<double>(decode_steps) : 0;
}

std::string Describe(const GenerationStats& stats, size_t context) {
  std::string out =
      fmt::format("prompt     {:>6} tokens{}", stats.prompt_tokens,
                  stats.cached_tokens > 0 ? fmt::format(" ({} in the KV cache)", stats.cached_tokens) : "");
  // What was not done has no speed: a prompt that was cut short or not run, a first token without a second.
  if (stats.prefill_s > 0) out += fmt::format("  {:>10.1f} tok/s", stats.prompt_tokens_per_s());
  if (stats.generated_tokens > 0) out += fmt::format("   TTFT {:.2f} ms", 1e3 * stats.ttft_s);
  out += fmt::format("\ngenerated  {:>6} tokens", stats.generated_tokens);
  if (stats.decode_steps > 0) {
    out += fmt::format("  {:>10.1f} tok/s   TPOT {:.3f} ms", stats.decode_tokens_per_s(), stats.tpot_ms());
  }
  out += fmt::format("\nstopped    {}\n", ReasonText(stats, context));
  return out;
}

Generator::Generator(pipeline::Engine& engine, std::shared_ptr<const model::Tokenizer> tokenizer,
                     serving::SamplingParams params)
    : engine_(engine),
      tokenizer_(std::move(tokenizer)),
      params_(std::move(params)),
      sampler_(params_, engine.plan().config.vocab) {}

void Generator::Clear() {
  engine_.Reset(0);
  cached_.clear();
  sampler_ = serving::Sampler(params_, engine_.plan().config.vocab);
}

// As many frames a Run as can be in flight: they are those that one Run of all rows would make, and Ctrl-C is
// seen between them.
bool Generator::Prefill(std::span<const model::TokenId> prompt, GenerationStats& stats) {
  if (prompt.empty()) throw Error("prompt: it has no tokens; give a text with -p or -f");
  if (prompt.size() > context()) {
    throw Error(
        "prompt: its {} tokens do not fit the context of {} tokens; shorten it or start with -c {} or more",
        prompt.size(), context(), prompt.size() + 1);
  }
  auto same = static_cast<size_t>(
      std::mismatch(cached_.begin(), cached_.end(), prompt.begin(), prompt.end()).first - cached_.begin());
  same = std::min(same, prompt.size() - 1);  // the last one's logits are needed
  stats.prompt_tokens = prompt.size();
  stats.cached_tokens = same;
  cached_.resize(same);
  const size_t frame_rows = engine_.max_rows() * engine_.in_flight_limit();
  std::vector<pipeline::TokenRow> rows;
  while (cached_.size() < prompt.size()) {
    if (Interrupts() > 0) return false;
    const size_t end = std::min(prompt.size(), cached_.size() + frame_rows);
    rows.clear();
    for (size_t i = cached_.size(); i < end; ++i) {
      rows.push_back({prompt[i], 0, static_cast<uint32_t>(i), i + 1 == prompt.size()});
    }
    engine_.Run(rows);
    for (const auto& row : rows) {
      cached_.push_back(row.token);
      sampler_.Accept(row.token);
    }
  }
  return true;
}

GenerationStats Generator::Run(std::span<const model::TokenId> prompt, const GenerateOptions& options,
                               const std::function<void(std::string_view)>& write) {
  GenerationStats stats;
  model::StreamDecoder decoder(tokenizer_, options.special, options.continues);
  serving::StopStrings stops(options.stops);
  const int64_t start = NowNs();
  if (!Prefill(prompt, stats)) {
    stats.reason = StopReason::kInterrupted;
    stats.prompt_tokens = cached_.size();
    stats.prefill_s = SecondsSince(start);
    return stats;
  }
  stats.prefill_s = SecondsSince(start);
  const auto limit = options.max_tokens < 0 ? SIZE_MAX : static_cast<size_t>(options.max_tokens);
  int64_t first_ns = 0;
  while (limit > 0) {
    const model::TokenId token = sampler_.Sample(engine_.logits(0));
    if (first_ns == 0) {
      first_ns = NowNs();
      stats.ttft_s = static_cast<double>(first_ns - start) * 1e-9;
    }
    stats.decode_s = SecondsSince(first_ns);
    sampler_.Accept(token);
    if (tokenizer_->IsEndOfGeneration(token)) {
      stats.reason = StopReason::kEndOfText;
      break;
    }
    ++stats.generated_tokens;
    if (const std::string text = stops.Add(decoder.Add(token)); !text.empty()) write(text);
    if (stops.stopped()) {
      stats.reason = StopReason::kStopString;
      break;
    }
    if (stats.generated_tokens >= limit) break;
    if (Interrupts() > 0) {
      stats.reason = StopReason::kInterrupted;
      break;
    }
    if (cached_.size() >= context()) {
      stats.reason = StopReason::kContextFull;
      break;
    }
    const pipeline::TokenRow row{token, 0, static_cast<uint32_t>(cached_.size()), true};
    engine_.Run({&row, 1});
    cached_.push_back(token);
    ++stats.decode_steps;
  }
  const std::string rest = stops.Add(decoder.Finish()) + stops.Finish();
  if (!rest.empty()) write(rest);
  if (stops.stopped()) {
    stats.reason = StopReason::kStopString;
    stats.stop_string = options.stops[static_cast<size_t>(stops.matched())];
  }
  return stats;
}

}  // namespace larder::node
