#include "serving/reply/completion.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "serving/reply/settings.h"

namespace larder::serving::inline reply {
namespace {

ReplyFacts Complete(ReplyFacts facts, const CompletionRequest& request,
                    const std::vector<GenerationSpec>& specs) {
  facts.include_usage = request.include_usage;
  facts.prompt_tokens = specs.empty() ? 0 : specs[0].prompt.size();
  facts.parallel_calls = request.tool_choice.parallel;
  facts.echoed = request.echoed;
  facts.namespaced = request.namespaced;
  facts.embedding = request.embedding;
  facts.form = request.form;
  facts.drawn_probs = request.spec.drawn_probs;
  const bool shows = IsNative(facts.dialect) ? !facts.form.brief : facts.form.verbose;
  if (shows && !specs.empty()) facts.settings = SettingsJson(specs[0], request);
  facts.prompt_logprobs = request.prompt_logprobs;
  return facts;
}

// Choices of a request that run or wait at once.
size_t MostAtOnce(const GenerationService& service, const std::vector<GenerationSpec>& specs) {
  const bool background = !specs.empty() && specs[0].background;
  return std::min(kMostChoices, background ? service.most_background() : service.most_at_once());
}

// Log-probabilities of a whole answer that the I/O thread makes at once, each of which is some
// microseconds of it. (Elsewhere is a thread that may have to wait for a core.) As many elements of
// vectors take as long as one.
constexpr size_t kMostAtOnce = 1024, kElements = 16;

size_t NumbersOf(const std::vector<TokenLogprobs>& logprobs) {
  size_t numbers = logprobs.size();
  for (const TokenLogprobs& one : logprobs) numbers += one.top.size();
  return numbers;
}

bool IsLarge(const std::vector<ChoiceResult>& results) {
  size_t numbers = 0, elements = 0;
  for (const ChoiceResult& result : results) {
    numbers += NumbersOf(result.logprobs);
    if (result.prompt_logprobs != nullptr) numbers += NumbersOf(*result.prompt_logprobs);
    elements += result.end.embedding.size();
  }
  return numbers + elements / kElements > kMostAtOnce;
}

std::string_view BytesOf(const std::vector<TokenId>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId)};
}

}  // namespace

struct Completion::Choice : GenerationListener {
  Choice(Completion& of, size_t at, std::vector<std::string> until)
      : completion(of), index(at), stops(std::move(until)) {}

  bool has_all() const override { return stops.stopped(); }

  void OnPrompt(const PromptLogprobs& logprobs) override { completion.TakePrompt(*this, logprobs); }

  void OnText(const GeneratedText& piece) override {
    if (stops.stopped()) return;
    const auto& [text, tokens, logprobs, stats] = piece;
    ChoiceResult& result = completion.results_[index];
    result.end.stats = stats;
    if (result.with_tokens) result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
    const std::vector<TokenLogprobs>* with = nullptr;
    if (result.with_logprobs) {
      if (completion.stream_) {
        held.insert(held.end(), logprobs.begin(), logprobs.end());
        with = &held;
      } else {
        result.logprobs.insert(result.logprobs.end(), logprobs.begin(), logprobs.end());
      }
    }
    if (parser) {
      const std::vector<AnswerDelta> deltas = parser->Add(text);
      if (!deltas.empty()) {
        const bool thinks = deltas.front().kind == AnswerDelta::Kind::kReasoning;
        if (thinks) result.reasoning_tokens += stats.generated_tokens - counted;
        counted = stats.generated_tokens;
      }
      for (const AnswerDelta& delta : deltas) TakeAnswer(delta, with);
    } else {
      whole_text.text = text;
      Take(whole_text, with);
    }
    characters += CountCharacters(text);
  }

  void OnProgress(const PromptProgress& progress) override {
    if (completion.stream_) completion.encoder_->Progress(index, progress);
  }

  void OnEnd(const GenerationEnd& ended) override {
    GenerationEnd end = ended;
    if (parser && !IsFailure(end.reason)) {
      const auto with = [&] { return held.empty() ? nullptr : &held; };  // Take empties it
      for (const AnswerDelta& delta : parser->Finish()) {
        const std::vector<TokenLogprobs>* logprobs = with();
        TakeAnswer(delta, logprobs);
      }
      if (!stops.stopped()) {
        AnswerDelta rest;
        rest.text = stops.Finish();
        if (!rest.text.empty()) Take(rest, with());
      }
      if (!held.empty()) Take(whole_text, with());  // tokens whose text is no part of the answer
      completion.results_[index].called = parser->called();
      if (stops.stopped()) {
        end.reason = FinishReason::kStopString;
        end.stop_string = stops.matched_text();
      }
    }
    completion.ChoiceEnded(*this, end);
  }

  // The prompt is the beginning of the text. logprobs: of its tokens; null: none are wanted.
  void Echo(const std::vector<TokenLogprobs>* logprobs) {
    AnswerDelta prompt;
    prompt.text = std::exchange(echo, {});
    Take(prompt, logprobs);
    characters += CountCharacters(prompt.text);
  }

  // Stop strings look at the answer only: not at thoughts, and not at calls.
  void TakeAnswer(const AnswerDelta& delta, const std::vector<TokenLogprobs>*& logprobs) {
    if (stops.stopped()) return;
    if (delta.kind != AnswerDelta::Kind::kContent || stops.empty())
      return Take(delta, std::exchange(logprobs, nullptr));
    AnswerDelta said = delta;
    said.text = stops.Add(delta.text);
    if (!said.text.empty()) Take(said, std::exchange(logprobs, nullptr));
  }

  void Take(const AnswerDelta& delta, const std::vector<TokenLogprobs>* logprobs) {
    ChoiceResult& result = completion.results_[index];
    if (!completion.stream_ || completion.encoder_->keeps_text()) result.Add(delta);
    if (!completion.stream_) return;
    completion.encoder_->Delta(index, delta, logprobs, characters, result);
    if (logprobs != nullptr) held.clear();
    result.tokens.clear();
  }

  Completion& completion;
  const size_t index;
  StopStrings stops;  // stop strings of the answer; without a parser the generation has them
  std::optional<AnswerParser> parser;  // nullopt: all text is the answer's
  AnswerDelta whole_text;
  std::string echo;                 // the prompt, if it is to come first, until it has come
  size_t characters = 0;            // characters of the text so far
  size_t counted = 0;               // tokens that are known to be thoughts, or not to be
  std::vector<TokenLogprobs> held;  // those of tokens whose text the parser holds back
  GenerationHandle handle;
};

Completion::Completion(GenerationService& service, const CompletionRequest& request,
                       std::vector<GenerationSpec> specs, ReplyFacts facts, Protocol protocol,
                       CompletionSink& sink)
    : sink_(sink),
      stored_(facts.stored),
      encoder_(MakeEncoder(Complete(std::move(facts), request, specs), sink)),
      stream_(request.stream),
      echoes_(request.echo && request.spec.logprobs >= 0),
      n_(request.n),
      most_logprobs_(static_cast<size_t>(std::max(request.spec.logprobs, 0))),
      service_(service),
      protocol_(protocol),
      most_at_once_(MostAtOnce(service, specs)),
      results_(specs.size()),
      specs_(std::move(specs)) {
  // Texts to embed may follow each other, choices are wanted at once.
  if (request.spec.pooling == model::Pooling::kNone && specs_.size() > most_at_once_)
    throw Refused(400,
                  "{} choices: expected at most {}, as many as this server's slots and queue hold",
                  specs_.size(), most_at_once_)
        .On(request.n > 1 ? "n" : "prompt");
  for (size_t i = 0; i < specs_.size(); ++i) {
    std::vector<std::string> stops;
    if (request.answer) stops = std::exchange(specs_[i].stops, {});
    choices_.push_back(std::make_unique<Choice>(*this, i, std::move(stops)));
    Choice& choice = *choices_.back();
    results_[i].prompt = i / request.n;
    results_[i].with_logprobs = request.spec.logprobs >= 0;
    results_[i].with_tokens = IsNative(request.dialect) &&
                              (request.form.tokens || (request.stream && !request.form.brief));
    results_[i].seed = specs_[i].sampling.seed;
    if (request.answer) {
      AnswerParserOptions options = *request.answer;
      options.id_seed = AnswerIdSeed(BytesOf(specs_[i].prompt), specs_[i].sampling.seed, i);
      choice.parser.emplace(std::move(options));
    }
    if (request.echo) {
      const auto* text = std::get_if<std::string>(&request.prompts[results_[i].prompt]);
      choice.echo = text != nullptr ? *text : service.options().tokenizer->Decode(specs_[i].prompt);
    }
  }
  left_ = choices_.size();
  StartMore();
  if (stream_) encoder_->Begin(choices_.size());
  if (!request.echo) return;
  // A stream of log-probabilities has the prompt with its own, when these have come.
  for (const auto& choice : choices_) {
    if (!stream_ || !echoes_) choice->Echo(nullptr);
  }
}

// Without streaming only the first choice of each prompt has them computed.
void Completion::TakePrompt(Choice& first, const PromptLogprobs& logprobs) {
  for (size_t i = first.index; i < (stream_ ? first.index + 1 : first.index + n_); ++i) {
    ChoiceResult& result = results_[i];
    result.prompt_logprobs = logprobs;
    if (!echoes_) continue;
    std::vector<TokenLogprobs> echoed = *logprobs;
    for (TokenLogprobs& one : echoed) one.top.resize(std::min(one.top.size(), most_logprobs_));
    if (stream_) {
      choices_[i]->Echo(&echoed);
    } else {
      result.logprobs.insert(result.logprobs.begin(), std::make_move_iterator(echoed.begin()),
                             std::make_move_iterator(echoed.end()));
    }
  }
}

// As many as a request may have that generates; of one with thousands of texts the next follow as
// others end.
void Completion::StartMore() {
  for (; started_ < choices_.size() && started_ - (choices_.size() - left_) < most_at_once_;
       ++started_) {
    Choice& choice = *choices_[started_];
    choice.handle = service_.Start(std::move(specs_[started_]), protocol_, &choice);
    results_[started_].prompt_tokens = choice.handle.prompt();
  }
}

Completion::~Completion() = default;

void Completion::Cancel() {
  cancelled_ = true;
  for (auto& choice : choices_) choice->handle.Stop();
}

void Completion::SayFailed(int status, const std::string& message) {
  encoder_->Failed(status, message);
}

void Completion::Fail(int status, const std::string& message) {
  for (auto& choice : choices_) choice->handle.Cancel();
  sink_.OnFailure(status, message);
}

// Whether the whole answer is large, and the sink has another thread for it.
bool Completion::IsMadeElsewhere() {
  if (stored_ || !IsLarge(results_)) return false;
  auto results = std::make_shared<std::vector<ChoiceResult>>(std::move(results_));
  if (sink_.MakesElsewhere([encoder = encoder_, results] { return encoder->Whole(*results); }))
    return true;
  results_ = std::move(*results);
  return false;
}

void Completion::ChoiceEnded(Choice& choice, const GenerationEnd& end) {
  if (IsFailure(end.reason)) return Fail(StatusOf(end.reason), end.error);
  if (end.reason == FinishReason::kCancelled && !cancelled_)
    return Fail(503, "the server is shutting down");
  ChoiceResult& result = results_[choice.index];
  result.end = end;
  if (stream_) encoder_->End(choice.index, result);
  if (--left_ > 0) {
    try {
      StartMore();
    } catch (const Refused& why) {
      Fail(why.status(), why.what());
    }
    return;
  }
  if (!stream_ && IsMadeElsewhere()) return;
  if (!stream_ || stored_) {
    const nlohmann::json whole = encoder_->Whole(results_);
    if (stored_) sink_.OnStored(whole);
    if (!stream_) {
      sink_.OnDone(&whole);
      return;
    }
  }
  encoder_->Done(results_);
  sink_.OnDone(nullptr);
}

}  // namespace larder::serving::reply
