// What is sent to a server says all that the answer depends on; and what a server says of itself.
#include "serving/batch/remote_request.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serving/batch/batch_work.h"
#include "serving/batch/served_model.h"

namespace larder::serving::inline batch {
namespace {

using nlohmann::json;

CompletionDefaults Defaults() {
  CompletionDefaults defaults;
  defaults.vocab = 100;
  defaults.context = 64;
  defaults.model = "tiny";
  defaults.max_tokens = 7;
  defaults.sampling.temperature = 0.3f;
  defaults.sampling.repeat_penalty = 1.1f;
  return defaults;
}

json Sent(const json& body, const CompletionDefaults& defaults = Defaults(),
          bool ignore_eos = false, Dialect dialect = Dialect::kCompletion) {
  const BatchLine line = {.custom_id = "a", .dialect = dialect, .body = body.dump()};
  return json::parse(RemoteBody(line, defaults, 5, ignore_eos));
}

// Everything that a server makes of the request, as text, except for the part of its own defaults
// in it.
std::string Read(const json& body, const CompletionDefaults& defaults,
                 Dialect dialect = Dialect::kCompletion) {
  const CompletionRequest r = ReadCompletionRequest(body, dialect, defaults);
  const SamplingParams& p = r.spec.sampling;
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", p.temperature, p.top_k, p.top_p, p.min_p,
                  p.repeat_penalty, p.repeat_last_n, p.presence_penalty, p.frequency_penalty,
                  r.spec.max_tokens, r.seed.value_or(0), r.ignore_eos);
  for (const auto& [token, bias] : p.logit_bias) text += fmt::format(" {}{:+}", token, bias);
  text += " " + r.echoed.dump();
  return text;
}

TEST(RemoteRequestTest, AServerMakesOfItWhatTheOwnEngineMakesOfTheLine) {
  CompletionDefaults here = Defaults();
  here.seed = 5;
  here.sampling.logit_bias = {{3, 1.5f}, {4, -std::numeric_limits<float>::infinity()}};
  CompletionDefaults there;  // as a server that was started with other options
  there.vocab = here.vocab;
  there.context = here.context;
  there.sampling.top_k = 3;
  there.sampling.repeat_last_n = 9;
  there.seed = 77;
  there.max_tokens = 1;
  for (
      const char* text :
      {R"({"prompt":"x"})", R"({"prompt":"x","seed":9,"temperature":1.3,"n_predict":3})",
       R"({"prompt":"x","seed":-4,"top_p":null,"max_completion_tokens":2,"repetition_penalty":1.3})",
       R"({"prompt":"x","logit_bias":{"9":-2},"ignore_eos":true,"min_p":0.25,"presence_penalty":-0.5})",
       R"({"prompt":"x","logit_bias":[[9,false],[8,0.1]],"top_k":0,"max_tokens":-1,"frequency_penalty":2})"}) {
    const json body = json::parse(text);
    EXPECT_EQ(Read(Sent(body, here), there), Read(body, here)) << text;
  }
  for (const int64_t most : {7, -1}) {
    here.max_tokens = most;
    for (const char* text :
         {R"({"input":"x"})", R"({"input":"x","max_output_tokens":3,"temperature":0.7})",
          R"({"input":"x","max_output_tokens":null,"top_p":0.5,"instructions":"Be brief."})"}) {
      const json body = json::parse(text);
      constexpr Dialect kDialect = Dialect::kResponses;
      EXPECT_EQ(Read(Sent(body, here, false, kDialect), there, kDialect),
                Read(body, here, kDialect))
          << text;
    }
  }
  EXPECT_EQ(Sent({{"input", "x"}, {"store", true}}, here, false, Dialect::kResponses)["store"],
            false);
  const json vectors = {{"input", {"a", "b"}}, {"encoding_format", "base64"}};
  EXPECT_EQ(Sent(vectors, here, true, Dialect::kEmbeddings), vectors);
}

TEST(RemoteRequestTest, SaysTheSeedAndLeavesTheRequestAlone) {
  const json sent = Sent({{"prompt", "x"}, {"stop", {"."}}, {"n", 3}});
  EXPECT_EQ(sent["seed"], 5);
  EXPECT_EQ(sent["stop"], json({"."}));
  EXPECT_EQ(sent["n"], 3);
  EXPECT_EQ(sent["max_tokens"], 7);
  EXPECT_FALSE(sent.contains("ignore_eos"));
  EXPECT_EQ(Sent({{"prompt", "x"}}, Defaults(), true)["ignore_eos"], true);
  BatchJob job;
  for (uint64_t seed : {uint64_t{0}, ~uint64_t{0}}) {
    job.seed = seed;
    EXPECT_LE(SeedOf(job, {.custom_id = "a"}), uint64_t{INT64_MAX})
        << "a request's JSON can say it";
  }
}

TEST(ServedModelTest, IsReadAsItIsSaidAndComparedByWhatAnswersDependOn) {
  const ServedModel model = {.name = "tiny",
                             .fingerprint = 0xfedcba9876543210u,
                             .engine = "larder 1",
                             .chat_template = "auto",
                             .tool_parser = "hermes",
                             .context = 64,
                             .vocab = 100,
                             .dim = 32,
                             .slots = 4,
                             .pooling = "mean"};
  const json plan = {{"served", model.ToJson()}};
  EXPECT_EQ(model.Differs(ServedModel::OfPlan(plan)), "");
  EXPECT_EQ(ServedModel::OfPlan(plan).slots, 4u);
  const auto differs = [&](auto&& change) {
    ServedModel other = model;
    change(other);
    return model.Differs(other);
  };
  EXPECT_EQ(differs([](ServedModel& m) { m.slots = 1; }), "");
  EXPECT_EQ(differs([](ServedModel& m) { ++m.fingerprint; }), "it serves another model");
  EXPECT_EQ(differs([](ServedModel& m) { m.context = 32; }), "its context has 32 tokens, not 64");
  EXPECT_NE(differs([](ServedModel& m) { m.name = "x"; }), "");
  EXPECT_NE(differs([](ServedModel& m) { m.engine = "x"; }), "");
  EXPECT_NE(differs([](ServedModel& m) { m.vocab = 1; }), "");
  EXPECT_NE(differs([](ServedModel& m) { m.chat_template = "chatml"; }), "");
  EXPECT_NE(differs([](ServedModel& m) { m.biased = true; }), "");
  EXPECT_EQ(differs([](ServedModel& m) { m.tool_parser = "glm45"; }),
            "its tool parser is glm45, not hermes");
  EXPECT_EQ(differs([](ServedModel& m) { m.pooling = "last"; }), "its pooling is last, not mean");
  for (const char* change :
       {"{}", R"({"served":null})", R"({"served":{}})", R"({"served":[]})", "[]", "null"})
    EXPECT_THROW(ServedModel::OfPlan(json::parse(change)), Error) << change;
  for (const auto& [field, value] : {std::pair<const char*, json>{"fingerprint", "xyz"},
                                     {"fingerprint", 3},
                                     {"context", 0},
                                     {"slots", -1.5},
                                     {"pooling", "most"},
                                     {"biased", 1}}) {
    json damaged = plan;
    damaged["served"][field] = value;
    if (std::string(field) == "slots") damaged["served"]["slots"] = "many";
    EXPECT_THROW(ServedModel::OfPlan(damaged), Error) << field;
  }
}

}  // namespace
}  // namespace larder::serving::batch
