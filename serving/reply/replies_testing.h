// Test support: an answer driven through an encoder as a Completion does it, and its events as
// text.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline reply {

struct RecordedEvents : EventSink {
  void OnEvent(const char* name, std::string object) override {
    all.emplace_back(name == nullptr ? "" : name, nlohmann::json::parse(object));
  }
  std::vector<std::pair<std::string, nlohmann::json>> all;
};

inline ReplyFacts TestFacts(Dialect dialect) {
  static const auto tokenizer = model::Tokenizer::FromData(model::TinySpm());
  ReplyFacts facts;
  facts.dialect = dialect;
  facts.id = "1";
  facts.model = "tiny";
  facts.created = 12;
  facts.tokenizer = tokenizer.get();
  facts.prompt_tokens = 5;
  return facts;
}

inline GenerationEnd TestEnd(FinishReason reason) {
  GenerationEnd end;
  end.reason = reason;
  end.stats = {.prompt_tokens = 5,
               .reused_tokens = 2,
               .generated_tokens = 3,
               .prompt_ns = 3'000'000,
               .queue_ns = 1'000'000,
               .first_token_ns = 4'000'000,
               .total_ns = 8'000'000};
  return end;
}

// A thought, a text and a call of get_weather.
inline std::vector<AnswerDelta> TestDeltas() {
  using Kind = AnswerDelta::Kind;
  return {{Kind::kReasoning, 0, "hm", ""},     {Kind::kContent, 0, "Let me ", ""},
          {Kind::kContent, 0, "look.", ""},    {Kind::kCallBegin, 0, "get_weather", "call_1"},
          {Kind::kArguments, 0, "{\"c\"", ""}, {Kind::kArguments, 0, ":1}", ""},
          {Kind::kCallEnd, 0, "", ""}};
}

inline ChoiceResult TestResult(const std::vector<AnswerDelta>& deltas, FinishReason reason) {
  ChoiceResult result;
  for (const AnswerDelta& delta : deltas) {
    result.Add(delta);
    result.called |= delta.kind == AnswerDelta::Kind::kCallBegin;
  }
  result.end = TestEnd(reason);
  return result;
}

inline AnswerDelta TextDelta(std::string text) {
  return {AnswerDelta::Kind::kContent, 0, std::move(text), ""};
}

inline std::vector<std::pair<std::string, nlohmann::json>> EventsOf(
    ReplyFacts facts, const std::vector<AnswerDelta>& deltas, FinishReason reason) {
  RecordedEvents events;
  const auto encoder = MakeEncoder(std::move(facts), events);
  encoder->Begin(1);
  ChoiceResult result;
  for (const AnswerDelta& delta : deltas) {
    if (encoder->keeps_text()) result.Add(delta);
    result.called |= delta.kind == AnswerDelta::Kind::kCallBegin;
    encoder->Delta(0, delta, nullptr, 0, result);
  }
  result.end = TestEnd(reason);
  encoder->End(0, result);
  encoder->Done({result});
  return events.all;
}

inline nlohmann::json WholeOf(ReplyFacts facts, const std::vector<ChoiceResult>& results) {
  RecordedEvents events;
  return MakeEncoder(std::move(facts), events)->Whole(results);
}

}  // namespace larder::serving::reply
