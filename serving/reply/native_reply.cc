// llama-server's /completion and /infill, and the text stream.
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

class NativeEncoder : public ReplyEncoder {
 public:
  NativeEncoder(ReplyHead head, EventSink& sink) : head_(std::move(head)), sink_(sink) {}

  json Whole(const std::vector<ChoiceResult>& results) const override {
    json all = json::array();
    for (size_t i = 0; i < results.size(); ++i) {
      all.push_back(Last(i, results[i].Text(), results[i].end));
      if (results[i].with_logprobs)
        all.back()["completion_probabilities"] =
            TokenList(*head_.tokenizer, results[i].logprobs, /*with_ids=*/true);
    }
    return all.size() == 1 ? all[0] : all;
  }

  void Begin(size_t choices) override {
    for (size_t i = 0; i < choices; ++i) texts_.emplace_back(Piece(i, PreparedEvent::kText));
  }

  void Delta(size_t at, const AnswerDelta& delta, const std::vector<TokenLogprobs>* logprobs,
             size_t, const ChoiceResult&) override {
    if (logprobs == nullptr) {
      sink_.OnEvent(nullptr, texts_[at](delta.text));
      return;
    }
    json chunk = Piece(at, delta.text);
    chunk["completion_probabilities"] = TokenList(*head_.tokenizer, *logprobs, /*with_ids=*/true);
    sink_.OnEvent(nullptr, Dump(chunk));
  }

  void End(size_t at, const ChoiceResult& result) override {
    sink_.OnEvent(nullptr, Dump(Last(at, "", result.end)));
  }

  void Failed(int status, const std::string& message) override {
    sink_.OnEvent(nullptr, Dump(ErrorJson(status, message)));
  }

 private:
  static json Piece(size_t at, std::string_view text) {
    return {{"index", at}, {"content", text}, {"stop", false}};
  }

  // The last chunk, or the whole answer.
  json Last(size_t at, std::string_view text, const GenerationEnd& end) const {
    return {{"index", at},
            {"content", text},
            {"id_slot", end.stats.slot.value},
            {"stop", true},
            {"stop_type", StopType(end.reason)},
            {"stopping_word", end.stop_string},
            {"truncated", end.reason == FinishReason::kContextFull},
            {"model", head_.model},
            {"tokens_predicted", end.stats.generated_tokens},
            {"tokens_evaluated", end.stats.prompt_tokens},
            {"tokens_cached", end.stats.reused_tokens},
            {"timings", TimingsJson(end.stats)}};
  }

  ReplyHead head_;
  EventSink& sink_;
  std::vector<PreparedEvent> texts_;  // [choice]
};

}  // namespace

std::unique_ptr<ReplyEncoder> MakeNativeEncoder(ReplyHead head, EventSink& sink) {
  return std::make_unique<NativeEncoder>(std::move(head), sink);
}

}  // namespace larder::serving::reply
