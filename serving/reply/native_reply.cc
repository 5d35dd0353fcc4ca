// llama-server's /completion and /infill, and the text stream.
#include <fmt/ranges.h>

#include "serving/reply/prepared_event.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;

const char* StopType(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText:
      return "eos";
    case FinishReason::kStopString:
      return "word";
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return "limit";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kRefused:
    case FinishReason::kFailed:
    case FinishReason::kUnavailable:
      return "none";
  }
  return "none";
}

// "a/b" is b of a; nullptr: there is none.
const json* At(const json& object, std::string_view path) {
  const json* at = &object;
  while (at->is_object()) {
    const size_t end = path.find('/');
    const auto found = at->find(path.substr(0, end));
    if (found == at->end()) return nullptr;
    at = &*found;
    if (end == std::string_view::npos) return at;
    path.remove_prefix(end + 1);
  }
  return nullptr;
}

class NativeEncoder : public ReplyEncoder {
 public:
  NativeEncoder(ReplyFacts facts, EventSink& sink) : facts_(std::move(facts)), sink_(sink) {}

  json Whole(const std::vector<ChoiceResult>& results) const override {
    json all = json::array();
    for (size_t i = 0; i < results.size(); ++i) {
      json one = NativeJson(facts_, i, results[i].Text(), results[i]);
      if (results[i].with_logprobs) one["completion_probabilities"] = Tokens(results[i].logprobs);
      all.push_back(Shown(std::move(one)));
    }
    return all.size() == 1 ? all[0] : all;
  }

  void Begin(size_t choices) override {
    for (size_t i = 0; i < choices; ++i) texts_.emplace_back(Piece(i, PreparedEvent::kText));
  }

  void Delta(size_t at, const AnswerDelta& delta, const std::vector<TokenLogprobs>* logprobs,
             size_t, const ChoiceResult& so_far) override {
    if (logprobs == nullptr && !facts_.form.timings) {
      std::string event = texts_[at](delta.text);
      if (so_far.with_tokens) {
        event.pop_back();  // "}"
        event += fmt::format(",\"tokens\":[{}]}}", fmt::join(so_far.tokens, ","));
      }
      sink_.OnEvent(nullptr, std::move(event));
      return;
    }
    json chunk = Piece(at, delta.text);
    if (so_far.with_tokens) chunk["tokens"] = so_far.tokens;
    if (facts_.form.timings) chunk["timings"] = TimingsJson(so_far.end.stats);
    if (logprobs != nullptr) chunk["completion_probabilities"] = Tokens(*logprobs);
    sink_.OnEvent(nullptr, Dump(chunk));
  }

  void Progress(size_t at, const PromptProgress& progress) override {
    json chunk = Piece(at, "");
    chunk["prompt_progress"] = ProgressJson(progress);
    if (facts_.form.timings) chunk["timings"] = TimingsJson(progress);
    sink_.OnEvent(nullptr, Dump(chunk));
  }

  void End(size_t at, const ChoiceResult& result) override {
    json last = NativeJson(facts_, at, "", result);
    last["tokens"] = json::array();
    sink_.OnEvent(nullptr, Dump(Shown(std::move(last))));
  }

  void Failed(int status, const std::string& message) override {
    sink_.OnEvent(nullptr, Dump(ErrorJson(status, message)));
  }

 private:
  static json Piece(size_t at, std::string_view text) {
    return {{"index", at}, {"content", text}, {"stop", false}};
  }

  json Tokens(const std::vector<TokenLogprobs>& logprobs) const {
    return TokenList(*facts_.tokenizer, logprobs,
                     facts_.drawn_probs ? TokenListForm::kNativeDrawn : TokenListForm::kNative);
  }

  json Shown(json whole) const {
    if (facts_.form.fields.empty()) return whole;
    json shown = json::object();
    for (const std::string& path : facts_.form.fields) {
      if (const json* found = At(whole, path)) shown[path] = *found;
    }
    return shown;
  }

  ReplyFacts facts_;
  EventSink& sink_;
  std::vector<PreparedEvent> texts_;  // [choice]
};

}  // namespace

json NativeJson(const ReplyFacts& facts, size_t at, std::string_view text,
                const ChoiceResult& result) {
  const GenerationEnd& end = result.end;
  json whole = {{"index", at},
                {"content", text},
                {"tokens", result.tokens},
                {"id_slot", end.stats.slot.value},
                {"stop", true},
                {"stop_type", StopType(end.reason)},
                {"stopping_word", end.stop_string},
                {"truncated", end.reason == FinishReason::kContextFull},
                {"has_new_line", end.stats.has_line_end},
                {"model", facts.model},
                {"tokens_predicted", end.stats.generated_tokens},
                {"tokens_evaluated", end.stats.prompt_tokens},
                {"tokens_cached", end.stats.reused_tokens},
                {"timings", TimingsJson(end.stats)}};
  if (facts.form.brief) return whole;
  std::string prompt;
  for (const TokenId token : result.prompt_tokens) prompt += facts.tokenizer->Piece(token, true);
  whole["prompt"] = std::move(prompt);
  whole["generation_settings"] = facts.settings;
  if (facts.settings.is_object()) whole["generation_settings"]["seed"] = result.seed;
  return whole;
}

std::unique_ptr<ReplyEncoder> MakeNativeEncoder(ReplyFacts facts, EventSink& sink) {
  return std::make_unique<NativeEncoder>(std::move(facts), sink);
}

}  // namespace larder::serving::reply
