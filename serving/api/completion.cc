#include "serving/api/completion.h"

#include "base/check.h"

namespace larder::serving::inline api {

// Chunks of one choice differ only in their text, so the JSON around it is made once. A JSON tree for each
// token would cost the I/O thread more than everything else that it does for the token outside the kernel.
class ChunkMaker {
 public:
  ChunkMaker(const ReplyHead& head, size_t index) {
    constexpr std::string_view kText = "\"the text goes here\"";
    const std::string whole = Dump(ChunkJson(head, index, kText.substr(1, kText.size() - 2), nullptr, 0));
    const size_t text =
        whole.find(kText);  // the first match: the model's name, which may contain it, is later
    LARDER_CHECK(text != std::string::npos);
    before_ = whole.substr(0, text);
    after_ = whole.substr(text + kText.size());
  }
  std::string operator()(std::string_view text) const { return before_ + Dump(text) + after_; }

 private:
  std::string before_, after_;
};

struct Completion::Choice : GenerationListener {
  Choice(Completion& of, size_t at) : completion(of), index(at), chunk(of.head_, at) {}

  void OnText(std::string_view text, const std::vector<TokenLogprobs>& logprobs, size_t) override {
    ChoiceResult& result = completion.results_[index];
    if (completion.stream_) {
      completion.sink_.OnChunk(result.with_logprobs
                                   ? Dump(ChunkJson(completion.head_, index, text, &logprobs, bytes))
                                   : chunk(text));
    } else {
      result.text += text;
      result.logprobs.insert(result.logprobs.end(), logprobs.begin(), logprobs.end());
    }
    bytes += text.size();
  }
  void OnEnd(const GenerationEnd& end) override { completion.ChoiceEnded(*this, end); }

  Completion& completion;
  const size_t index;
  const ChunkMaker chunk;
  size_t bytes = 0;  // length of the text so far
  GenerationHandle handle;
};

Completion::Completion(GenerationService& service, const CompletionRequest& request,
                       std::vector<GenerationSpec> specs, ReplyHead head, Protocol protocol,
                       CompletionSink& sink)
    : sink_(sink), head_(std::move(head)), stream_(request.stream), results_(specs.size()) {
  head_.include_usage = request.include_usage;
  for (size_t i = 0; i < specs.size(); ++i) {
    choices_.push_back(std::make_unique<Choice>(*this, i));
    results_[i].prompt = i / request.n;
    results_[i].with_logprobs = request.spec.logprobs >= 0;
    if (request.echo) {
      const auto* text = std::get_if<std::string>(&request.prompts[results_[i].prompt]);
      results_[i].text = text != nullptr ? *text : head_.tokenizer->Decode(specs[i].prompt);
    }
    choices_[i]->handle = service.Start(std::move(specs[i]), protocol, choices_[i].get());
  }
  running_ = choices_.size();
  if (!stream_) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (head_.dialect == Dialect::kChat) sink_.OnChunk(Dump(RoleChunkJson(head_, i)));
    if (request.echo) {
      sink_.OnChunk(choices_[i]->chunk(results_[i].text));
      choices_[i]->bytes = results_[i].text.size();
    }
  }
}

Completion::~Completion() = default;

void Completion::Cancel() {
  cancelled_ = true;
  for (auto& choice : choices_) choice->handle.Stop();
}

void Completion::ChoiceEnded(Choice& choice, const GenerationEnd& end) {
  if (IsFailure(end.reason)) {
    for (auto& other : choices_) other->handle.Cancel();
    sink_.OnFailure(StatusOf(end.reason), end.error);
    return;
  }
  if (end.reason == FinishReason::kCancelled && !cancelled_) {
    for (auto& other : choices_) other->handle.Cancel();
    sink_.OnFailure(503, "the server is shutting down");
    return;
  }
  results_[choice.index].end = end;
  if (stream_) sink_.OnChunk(Dump(LastChunkJson(head_, choice.index, end)));
  if (--running_ > 0) return;
  if (!stream_) {
    const nlohmann::json whole = WholeJson(head_, results_);
    sink_.OnDone(&whole);
    return;
  }
  if (head_.include_usage && head_.dialect != Dialect::kNative)
    sink_.OnChunk(Dump(UsageChunkJson(head_, results_)));
  sink_.OnDone(nullptr);
}

}  // namespace larder::serving::api
