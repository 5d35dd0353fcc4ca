// Requests as clients send them: what each field becomes, and the line that refuses what cannot be.
#include "serving/api/completion_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error_testing.h"
#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/api/defaults_testing.h"

namespace larder::serving::inline api {
namespace {

CompletionDefaults Defaults() {
  CompletionDefaults defaults = TinyDefaults();
  defaults.chat_template = model::ChatTemplate::Named("chatml", *defaults.tokenizer);
  defaults.aliases = {"other"};
  defaults.strict_model = true;
  return defaults;
}

CompletionRequest Read(const char* text, Dialect dialect = Dialect::kCompletion) {
  return ReadCompletionRequest(ParseJson(text), dialect, Defaults());
}

struct Wrong {
  const char* text;
  const char* field;  // `param` of the error
  const char* says;
  Dialect dialect = Dialect::kCompletion;
  int status = 400;
};

// In Ollama's API a conversation that is longer than the context loses its oldest messages.
class ShortenTest : public testing::Test {
 protected:
  static CompletionRequest Chat(const Json& messages, const char* more = "") {
    return ReadCompletionRequest(ParseJson(R"({"messages":)" + messages.dump() + more + "}"),
                                 Dialect::kOllamaChat, Defaults());
  }
  static Json Turns(int count) {
    Json messages = {{{"role", "system"}, {"content", "s"}}};
    for (int i = 0; i < count; ++i) {
      messages.push_back({{"role", "user"}, {"content", fmt::format("{}", i)}});
      messages.push_back({{"role", "assistant"}, {"content", "a"}});
    }
    messages.push_back({{"role", "user"}, {"content", "z"}});
    return messages;
  }
};

TEST_F(ShortenTest, TheOldestMessagesGoAndTheSystemsStay) {
  CompletionDefaults defaults = Defaults();
  defaults.context = 400;
  CompletionRequest whole = Chat(Turns(40));
  const size_t tokens = CountPromptTokens(whole, defaults);
  ASSERT_GT(tokens, defaults.context);
  CompletionRequest request = Chat(Turns(40));
  const auto specs = MakeSpecs(request, defaults);
  ASSERT_EQ(specs.size(), 1u);
  // A quarter of the context is left for the answer, and one more turn would not fit.
  EXPECT_LE(specs[0].prompt.size(), 300u);
  const Json& kept = request.messages;
  EXPECT_EQ(kept[0]["role"], "system");
  EXPECT_EQ(kept[1]["role"], "user");
  EXPECT_EQ(kept.back()["content"], "z");
  const size_t of_turn = tokens / 41;
  EXPECT_GT(specs[0].prompt.size() + 2 * of_turn, 300u);
  // What is kept is the end of the conversation that was sent.
  const Json all = Turns(40);
  for (size_t i = 1; i < kept.size(); ++i)
    EXPECT_EQ(kept[kept.size() - i]["content"], all[all.size() - i]["content"]);
}

TEST_F(ShortenTest, OneThatFitsOrMayNotBeCutStays) {
  CompletionDefaults defaults = Defaults();
  defaults.context = 400;
  CompletionRequest fits = Chat(Turns(2));
  MakeSpecs(fits, defaults);
  EXPECT_EQ(fits.messages.size(), 6u);
  CompletionRequest uncut = Chat(Turns(40), R"(,"truncate":false)");
  EXPECT_THROW(MakeSpecs(uncut, defaults), Refused);
  EXPECT_EQ(uncut.messages.size(), 82u);
  // The last message does not fit even alone.
  Json longer = Turns(3);
  longer.back()["content"] = std::string(2000, 'x');
  CompletionRequest last = Chat(longer);
  EXPECT_THROW(MakeSpecs(last, defaults), Refused);
  // Other APIs refuse such a conversation.
  CompletionRequest openai = ReadCompletionRequest(
      ParseJson(R"({"messages":)" + Turns(40).dump() + "}"), Dialect::kChat, defaults);
  EXPECT_THROW(MakeSpecs(openai, defaults), Refused);
}

// An agent's conversation: one question, and many calls that follow it.
TEST_F(ShortenTest, WithoutAnotherQuestionItBeginsWithTheAssistants) {
  CompletionDefaults defaults = Defaults();
  defaults.context = 400;
  Json messages = {{{"role", "user"}, {"content", "q"}}};
  for (int i = 0; i < 40; ++i) {
    messages.push_back({{"role", "assistant"}, {"content", fmt::format("{}", i)}});
    messages.push_back({{"role", "tool"}, {"content", "r"}, {"tool_name", "f"}});
  }
  CompletionRequest request = Chat(messages);
  const auto specs = MakeSpecs(request, defaults);
  EXPECT_LE(specs.at(0).prompt.size(), 300u);
  EXPECT_EQ(request.messages[0]["role"], "assistant");
  EXPECT_EQ(request.messages.back()["role"], "tool");
}

TEST(CompletionRequestTest, WrongRequestsAreRefusedByName) {
  const Wrong cases[] = {
      {R"([])", "", "object"},
      {R"({})", "prompt", "prompt is missing"},
      {R"({"prompt":3})", "prompt", "an array of token ids"},
      {R"({"prompt":[]})", "prompt", "an array of token ids"},
      {R"({"prompt":[1,100000]})", "prompt", "100000"},
      {R"({"prompt":["a",{"b":3}]})", "prompt", "prompt_string"},
      {R"({"prompt":["a",3,[]]})", "prompt", "an empty array"},
      {R"({"prompt":{"prompt_string":["a"]}})", "prompt", "an array of 1"},
      {R"({"prompt":{"prompt_string":{"prompt_string":"a"}}})", "prompt", "an object"},
      {R"({"prompt":{"prompt_string":"a","multimodal_data":"b"}})", "prompt.multimodal_data",
       "only text"},
      {R"({"prompt":"a","id_slot":-2})", "id_slot", "-2"},
      {R"({"prompt":"a","timings_per_token":1})", "timings_per_token", "true or false"},
      {R"({"prompt":"a","response_fields":"b"})", "response_fields", "64 names", Dialect::kNative},
      {R"({"prompt":"a","response_fields":[1]})", "response_fields", "64 names", Dialect::kNative},
      {R"({"prompt":"a","n_cmpl":65})", "n_cmpl", "65", Dialect::kNative},
      {R"({"prompt":"a","n_indent":-1})", "n_indent", "-1", Dialect::kNative},
      {R"({"prompt":"a","t_max_predict_ms":"1"})", "t_max_predict_ms", "1", Dialect::kNative},
      {R"({"prompt":"a","model":"huge"})", "model", "huge", Dialect::kCompletion, 404},
      {R"({"prompt":"a","n":0})", "n", "0"},
      {R"({"prompt":["a","b"],"n":40})", "n", "64 choices"},
      {R"({"prompt":"a","n":2,"best_of":3})", "best_of", "same number"},
      {R"({"prompt":"a","temperature":"hot"})", "temperature", "hot"},
      {R"({"prompt":"a","temperature":1e300})", "temperature", "temperature"},
      {R"({"prompt":"a","top_k":1.5})", "top_k", "1.5"},
      {R"({"prompt":"a","top_p":-1})", "", "top_p is -1"},
      {R"({"prompt":"a","samplers":["top_q"]})", "samplers", "penalties;dry;top_n_sigma"},
      {R"({"prompt":"a","samplers":"kz"})", "samplers", "names"},
      {R"({"prompt":"a","mirostat":3})", "mirostat", "0 to 2"},
      {R"({"prompt":"a","dry_base":0})", "", "dry_base is 0"},
      {R"({"prompt":"a","dry_sequence_breakers":[""]})", "dry_sequence_breakers", "1 to 40"},
      {R"({"prompt":"a","stop":[""]})", "stop", "1 to"},
      {R"({"prompt":"a","stop":3})", "stop", "3"},
      {R"({"prompt":"a","logprobs":21})", "logprobs", "21"},
      {R"({"prompt":"a","prompt_logprobs":21})", "prompt_logprobs", "21"},
      {R"({"prompt":"a","prompt_logprobs":-1})", "prompt_logprobs", "0 to 20"},
      {R"({"prompt":"a","prompt_logprobs":1,"stream":true})", "prompt_logprobs", "stream"},
      {R"({"prompt":"a","max_tokens":-2})", "max_tokens", "-2"},
      {R"({"prompt":"a","logit_bias":{"":1}})", "logit_bias", "token ids or texts"},
      {R"({"prompt":"a","logit_bias":[[null,1]]})", "logit_bias", "null"},
      {R"({"prompt":"a","logit_bias":{"x":true}})", "logit_bias", "true"},
      {R"({"prompt":"a","logit_bias":{"9999":1}})", "logit_bias", "9999"},
      {R"({"prompt":"a","logit_bias":[[1]]})", "logit_bias", "[token id or text, bias]"},
      {R"({"prompt":"a","stream":"yes"})", "stream", "yes"},
      {R"({"prompt":"a","cache_salt":""})", "cache_salt", "1 to 256"},
      {R"({"prompt":"a","cache_salt":7})", "cache_salt", "7"},
      {R"({"prompt":"a","suffix":"b"})", "suffix", "suffix"},
      {R"({"prompt":"a"})", "messages", "messages is missing", Dialect::kChat},
      {R"({"messages":[]})", "messages", "1 to", Dialect::kChat},
      {R"({"messages":[{"role":"user","content":3}]})", "messages[0].content", "3", Dialect::kChat},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content.type", "image_url", Dialect::kChat},
      {R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":2})", "top_logprobs",
       "logprobs", Dialect::kChat},
      {R"({"prompt":"a","messages":[]})", "prompt", "either", Dialect::kNative},
      {R"({})", "prompt", "either", Dialect::kNative},
  };
  for (const Wrong& wrong : cases) {
    try {
      Read(wrong.text, wrong.dialect);
      ADD_FAILURE() << wrong.text;
    } catch (const Refused& why) {
      EXPECT_EQ(why.status(), wrong.status) << wrong.text;
      EXPECT_EQ(why.param(), wrong.field) << wrong.text << ": " << why.what();
      EXPECT_NE(std::string(why.what()).find(wrong.says), std::string::npos)
          << wrong.text << why.what();
      EXPECT_EQ(std::string(why.what()).find('\n'), std::string::npos) << why.what();
    }
  }
}

TEST(CompletionRequestTest, TextThatIsNoJsonIsRefused) {
  EXPECT_THROW(ParseJson("{\"prompt\":"), Refused);
  EXPECT_THROW(ParseJson("{\"prompt\":\"\xff\"}"), Refused);
  EXPECT_THROW(ParseJson(std::string(100000, '[')), Refused);
}

TEST(CompletionRequestTest, DefaultsStayWhereFieldsAreAbsentOrNull) {
  CompletionDefaults defaults = Defaults();
  defaults.sampling.temperature = 0.3f;
  defaults.max_tokens = 17;
  defaults.seed = 5;
  for (const char* text :
       {R"({"prompt":"a"})",
        R"({"prompt":"a","temperature":null,"max_tokens":null,"seed":null,"stop":null})"}) {
    const auto got = ReadCompletionRequest(ParseJson(text), Dialect::kCompletion, defaults);
    EXPECT_EQ(got.spec.sampling.temperature, 0.3f);
    EXPECT_EQ(got.spec.max_tokens, 17);
    EXPECT_EQ(got.seed, 5u);
    EXPECT_EQ(got.n, 1u);
    EXPECT_EQ(got.spec.logprobs, -1);
    EXPECT_TRUE(got.spec.stops.empty());
    EXPECT_FALSE(got.stream);
  }
}

TEST(CompletionRequestTest, FieldsBecomeParameters) {
  const auto got = Read(
      R"({"model":"other","prompt":"a","temperature":0.5,"top_k":3.0,"top_p":0.9,"min_p":0.1,"stop":"x",)"
      R"("repeat_penalty":1.2,"repeat_last_n":8,"presence_penalty":0.25,"frequency_penalty":0.75,"seed":9,)"
      R"("max_tokens":4,"n":2,"logprobs":2,"stream":true,"stream_options":{"include_usage":true},)"
      R"("logit_bias":{"7":-100}})");
  const SamplingParams& p = got.spec.sampling;
  EXPECT_EQ(p.temperature, 0.5f);
  EXPECT_EQ(p.top_k, 3);
  EXPECT_EQ(p.top_p, 0.9f);
  EXPECT_EQ(p.min_p, 0.1f);
  EXPECT_EQ(p.repeat_penalty, 1.2f);
  EXPECT_EQ(p.repeat_last_n, 8);
  EXPECT_EQ(p.presence_penalty, 0.25f);
  EXPECT_EQ(p.frequency_penalty, 0.75f);
  EXPECT_EQ(p.logit_bias, (std::vector<std::pair<TokenId, float>>{{7, -100.f}}));
  EXPECT_EQ(got.spec.stops, std::vector<std::string>{"x"});
  EXPECT_EQ(got.spec.max_tokens, 4);
  EXPECT_EQ(got.spec.logprobs, 2);
  EXPECT_EQ(got.seed, 9u);
  EXPECT_EQ(got.n, 2u);
  EXPECT_TRUE(got.stream && got.include_usage);
}

TEST(CompletionRequestTest, SamplersHaveLlamaServersNames) {
  const auto got = Read(
      R"({"prompt":"a","typical_p":0.9,"top_n_sigma":1.5,"xtc_probability":0.5,"xtc_threshold":0.2,)"
      R"("min_keep":2,"dry_multiplier":0.8,"dry_base":1.5,"dry_allowed_length":3,"dry_penalty_last_n":100,)"
      R"("dry_sequence_breakers":["\n","stop"],"dynatemp_range":0.5,"dynatemp_exponent":2,"mirostat":2,)"
      R"("mirostat_tau":4,"mirostat_eta":0.2,"samplers":["top_k","typical_p","temperature"]})");
  const SamplingParams& p = got.spec.sampling;
  EXPECT_EQ(p.typical_p, 0.9f);
  EXPECT_EQ(p.top_n_sigma, 1.5f);
  EXPECT_EQ(p.xtc_probability, 0.5f);
  EXPECT_EQ(p.xtc_threshold, 0.2f);
  EXPECT_EQ(p.min_keep, 2u);
  EXPECT_EQ(p.dry_multiplier, 0.8f);
  EXPECT_EQ(p.dry_base, 1.5f);
  EXPECT_EQ(p.dry_allowed_length, 3);
  EXPECT_EQ(p.dry_penalty_last_n, 100);
  EXPECT_EQ(p.dry_sequence_breakers, (std::vector<std::string>{"\n", "stop"}));
  EXPECT_EQ(p.dynatemp_range, 0.5f);
  EXPECT_EQ(p.dynatemp_exponent, 2.0f);
  EXPECT_EQ(p.mirostat, 2);
  EXPECT_EQ(p.mirostat_tau, 4.0f);
  EXPECT_EQ(p.mirostat_eta, 0.2f);
  EXPECT_EQ(p.samplers,
            (std::vector{SamplerStep::kTopK, SamplerStep::kTypicalP, SamplerStep::kTemperature}));
  EXPECT_EQ(Read(R"({"prompt":"a","samplers":"edskypmxt"})").spec.sampling.samplers,
            DefaultSamplers());
  EXPECT_TRUE(Read(R"({"prompt":"a","samplers":[]})").spec.sampling.samplers.empty());
  EXPECT_EQ(Read(R"({"prompt":"a","samplers":["top_k","typ_p","tfs_z","typical_p","temperature"]})")
                .spec.sampling.samplers,
            p.samplers);
}

TEST(CompletionRequestTest, LlamaServersFieldsBecomeWishes) {
  const auto got = Read(
      R"({"prompt":"a","id_slot":3,"return_progress":true,"timings_per_token":true,"verbose":true,)"
      R"("return_tokens":true,"n_indent":4,"t_max_predict_ms":500,"post_sampling_probs":true,)"
      R"("n_cmpl":2,"response_fields":["content","timings/prompt_n"]})",
      Dialect::kNative);
  EXPECT_EQ(got.spec.slot, SlotId(3));
  EXPECT_TRUE(got.spec.reports_prompt && got.spec.drawn_probs);
  EXPECT_EQ(got.spec.most_predict_ms, 500);
  EXPECT_EQ(got.spec.least_indent, 4u);
  EXPECT_TRUE(got.form.timings && got.form.verbose && got.form.tokens);
  EXPECT_EQ(got.form.fields, (std::vector<std::string>{"content", "timings/prompt_n"}));
  EXPECT_EQ(got.n, 2u);
  EXPECT_EQ(got.ignored_fields, 0u);
  const auto plain = Read(R"({"prompt":"a","id_slot":-1,"t_max_predict_ms":0})", Dialect::kNative);
  EXPECT_EQ(plain.spec.slot, std::nullopt);
  EXPECT_EQ(plain.spec.most_predict_ms, -1);
  const auto chat = Read(
      R"({"messages":[{"role":"user","content":"a"}],"id_slot":1,"return_progress":true,"verbose":true})",
      Dialect::kChat);
  EXPECT_EQ(chat.spec.slot, SlotId(1));
  EXPECT_TRUE(chat.spec.reports_prompt && chat.form.verbose);
}

TEST(CompletionRequestTest, BiasesOfTextsAreThoseOfTheirTokens) {
  const auto tokenizer = Defaults().tokenizer;
  const std::vector<TokenId> hello = tokenizer->Encode(" hello", false, false);
  for (const char* text : {R"({"prompt":"a","logit_bias":[[" hello",-2],[5,false]]})",
                           R"({"prompt":"a","logit_bias":{" hello":-2,"5":false}})"}) {
    const auto got = Read(text, Dialect::kNative).spec.sampling.logit_bias;
    ASSERT_EQ(got.size(), hello.size() + 1) << text;
    for (size_t i = 0; i < hello.size(); ++i)
      EXPECT_EQ(got[i], (std::pair<TokenId, float>(hello[i], -2.0f))) << text;
    EXPECT_EQ(got.back().first, 5);
    EXPECT_TRUE(std::isinf(got.back().second));
  }
  std::string many = R"({"prompt":"a","logit_bias":[)";
  for (int i = 0; i < 500; ++i)
    many += fmt::format("{}[\"{}\",1]", i > 0 ? "," : "", std::string(900, 'q'));
  EXPECT_THROW(Read((many + "]}").c_str(), Dialect::kNative), Refused) << "too many tokens in all";
}

TEST(MakeSpecsTest, APromptMayMixTextsAndTokens) {
  const CompletionDefaults defaults = Defaults();
  const auto prompts = [&](const char* text) {
    auto request = Read(text, Dialect::kNative);
    std::vector<std::vector<TokenId>> all;
    for (const GenerationSpec& spec : MakeSpecs(request, defaults)) all.push_back(spec.prompt);
    return all;
  };
  const std::vector<TokenId> begun = defaults.tokenizer->Encode("hello", true, true),
                             inner = defaults.tokenizer->Encode("hello", false, true);
  ASSERT_NE(begun, inner);
  std::vector<TokenId> first = begun, second = {5};
  first.push_back(5);
  second.insert(second.end(), inner.begin(), inner.end());
  using All = std::vector<std::vector<TokenId>>;
  EXPECT_EQ(prompts(R"({"prompt":["hello",5]})"), All{first});
  EXPECT_EQ(prompts(R"({"prompt":[5,"hello"]})"), All{second}) << "no beginning of text inside";
  EXPECT_EQ(prompts(R"({"prompt":[[5,"hello"],{"prompt_string":["hello",5]},"hello"]})"),
            (All{second, first, begun}));
  EXPECT_EQ(prompts(R"({"prompt":{"prompt_string":"hello"}})"), All{begun});
  const std::string huge = R"({"prompt":[1,")" + std::string(100'000, 'a') + R"("]})";
  EXPECT_THROW(Read(huge.c_str(), Dialect::kNative), Refused) << "before it is tokenized";
}

TEST(MakeSpecsTest, OnlyAPromptsFirstChoiceWaitsForTheSlot) {
  auto request = Read(R"({"prompt":["a","b"],"n":2,"id_slot":1})", Dialect::kNative);
  const auto specs = MakeSpecs(request, Defaults());
  ASSERT_EQ(specs.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(specs[i].slot.has_value(), i % 2 == 0) << i;
}

TEST(CompletionRequestTest, AnyModelsNameIsAcceptedUnlessStrict) {
  CompletionDefaults defaults = Defaults();
  const auto body = ParseJson(R"({"prompt":"a","model":"huge"})");
  EXPECT_THROW(ReadCompletionRequest(body, Dialect::kCompletion, defaults), Refused);
  defaults.strict_model = false;
  EXPECT_EQ(ReadCompletionRequest(body, Dialect::kCompletion, defaults).prompts.size(), 1u);
  EXPECT_THROW(ReadCompletionRequest(ParseJson(R"({"prompt":"a","model":7})"), Dialect::kCompletion,
                                     defaults),
               Refused);
}

// llama-server's and vLLM's names for the same things, and which of several names counts.
TEST(CompletionRequestTest, ASaltKeepsPromptsApart) {
  const auto group = [](const char* text, uint64_t tenant) {
    GenerationSpec spec = Read(text).spec;
    spec.tenant = Tenant{tenant};
    return spec.cache_group();
  };
  const char* one = R"({"prompt":"a","cache_salt":"one"})";
  const char* none = R"({"prompt":"a"})";
  EXPECT_EQ(group(one, 5), group(one, 5));
  EXPECT_NE(group(one, 5), group(one, 6));
  EXPECT_NE(group(one, 5), group(none, 5));
  EXPECT_NE(group(one, 5), group(R"({"prompt":"a","cache_salt":"two"})", 5));
  EXPECT_EQ(group(none, 5), 5u);
}

TEST(CompletionRequestTest, OtherServersNamesWork) {
  EXPECT_EQ(Read(R"({"prompt":"a","n_predict":3})", Dialect::kNative).spec.max_tokens, 3);
  EXPECT_EQ(Read(R"({"prompt":"a","n_predict":3,"max_tokens":4,"max_completion_tokens":5})")
                .spec.max_tokens,
            5);
  EXPECT_EQ(Read(R"({"prompt":"a","repetition_penalty":1.5})").spec.sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(Read(R"({"prompt":"a","n_probs":2})", Dialect::kNative).spec.logprobs, 2);
  EXPECT_EQ(Read(R"({"prompt":"a","n_probs":0})", Dialect::kNative).spec.logprobs, -1);
  EXPECT_EQ(Read(R"({"prompt":"a","seed":-1})").seed, std::nullopt);
  const auto banned =
      Read(R"({"prompt":"a","logit_bias":[[5,false],[6,1.5]]})").spec.sampling.logit_bias;
  ASSERT_EQ(banned.size(), 2u);
  EXPECT_TRUE(std::isinf(banned[0].second) && banned[0].second < 0);
  EXPECT_EQ(banned[1], (std::pair<TokenId, float>{6, 1.5f}));
  const auto chat = Read(
      R"({"messages":[{"role":"developer","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]}],"logprobs":true,"chat_template_kwargs":{"enable_thinking":false}})",
      Dialect::kChat);
  ASSERT_EQ(chat.messages.size(), 2u);
  EXPECT_EQ(chat.messages[0]["role"], "system");
  EXPECT_EQ(chat.messages[1]["content"], "a\nb") << "parts are lines";
  EXPECT_EQ(chat.spec.logprobs, 0) << "the chosen token's alone";
  EXPECT_EQ(chat.kwargs["enable_thinking"], false);
}

TEST(MakeSpecsTest, AreByPromptThenByChoiceAndDifferInSeed) {
  const CompletionDefaults defaults = Defaults();
  auto request = Read(R"({"prompt":["hello","world"],"n":2,"seed":40})");
  const auto specs = MakeSpecs(request, defaults);
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(specs[0].prompt, specs[1].prompt);
  EXPECT_NE(specs[1].prompt, specs[2].prompt);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(specs[i].sampling.seed, 40 + i % 2);
  EXPECT_TRUE(specs[0].continues);
  request.seed.reset();
  EXPECT_NE(MakeSpecs(request, defaults)[0].sampling.seed,
            MakeSpecs(request, defaults)[0].sampling.seed);
  auto tokens = Read(R"({"prompt":[5,6,7]})");
  EXPECT_EQ(MakeSpecs(tokens, defaults)[0].prompt, (std::vector<TokenId>{5, 6, 7}));
}

TEST(MakeSpecsTest, PromptsWantWhatTheLargerOfBothFieldsSays) {
  const CompletionDefaults defaults = Defaults();
  const auto of = [&](const char* text, Dialect dialect = Dialect::kCompletion) {
    CompletionRequest request = Read(text, dialect);
    std::vector<int> all;
    for (const GenerationSpec& spec : MakeSpecs(request, defaults))
      all.push_back(spec.prompt_logprobs);
    return all;
  };
  using All = std::vector<int>;
  EXPECT_EQ(of(R"({"prompt":"a","logprobs":2})"), All({-1}));
  EXPECT_EQ(of(R"({"prompt":"a","echo":true})"), All({-1}));
  EXPECT_EQ(of(R"({"prompt":"a","echo":true,"logprobs":0})"), All({0}));
  EXPECT_EQ(of(R"({"prompt":"a","echo":true,"logprobs":1,"prompt_logprobs":3})"), All({3}));
  EXPECT_EQ(of(R"({"prompt":"a","echo":true,"logprobs":4,"prompt_logprobs":3})"), All({4}));
  EXPECT_EQ(of(R"({"prompt":["a","b"],"n":2,"prompt_logprobs":3})"), All({3, -1, 3, -1}))
      << "the choices of a prompt share them";
  EXPECT_EQ(of(R"({"prompt":"a","n":2,"echo":true,"logprobs":1,"stream":true})"), All({1, 1}));
  EXPECT_EQ(
      of(R"({"messages":[{"role":"user","content":"a"}],"prompt_logprobs":0,"logprobs":true})",
         Dialect::kChat),
      All({0}));
}

TEST(MakeSpecsTest, AnAnswerHasABoundedNumberOfPromptLogprobs) {
  CompletionDefaults defaults = Defaults();
  defaults.context = 20'000;
  CompletionRequest request = Read(R"({"prompt":"a","prompt_logprobs":15})");
  request.prompts = {std::vector<TokenId>(8192, 5)};
  EXPECT_EQ(MakeSpecs(request, defaults).size(), 1u);
  request.prompts = {std::vector<TokenId>(8193, 5)};
  EXPECT_NE(ErrorOf([&] { MakeSpecs(request, defaults); }).find("131072 log-probabilities"),
            std::string::npos);
  request = Read(R"({"prompt":"a","echo":true,"logprobs":1,"n":9})");
  request.prompts = {std::vector<TokenId>(8192, 5)};
  EXPECT_NE(ErrorOf([&] { MakeSpecs(request, defaults); }).find("logprobs is 1 for 73728 tokens"),
            std::string::npos);
  request = Read(R"({"prompt":"a","echo":true,"logprobs":1,"stream":true})");
  request.prompts = {std::vector<TokenId>(4096, 5)};
  EXPECT_EQ(MakeSpecs(request, defaults).size(), 1u);
  request.prompts = {std::vector<TokenId>(4097, 5)};
  EXPECT_NE(ErrorOf([&] { MakeSpecs(request, defaults); }).find("8192 log-probabilities"),
            std::string::npos);
}

TEST(MakeSpecsTest, IgnoringTheEndBansItsTokens) {
  const CompletionDefaults defaults = Defaults();
  auto request = Read(R"({"prompt":"hello","ignore_eos":true})");
  const auto specs = MakeSpecs(request, defaults);
  size_t ends = 0;
  for (const auto& [token, bias] : specs[0].sampling.logit_bias) {
    EXPECT_TRUE(defaults.tokenizer->IsEndOfGeneration(token)) << token;
    EXPECT_TRUE(std::isinf(bias) && bias < 0);
    ++ends;
  }
  EXPECT_EQ(ends, 2u) << "</s> and <|eot_id|>";
}

TEST(MakeSpecsTest, TextsThatCannotFitAreRefused) {
  const auto refusal = [](const std::string& text, Dialect dialect,
                          CompletionDefaults defaults = Defaults()) {
    try {
      CompletionRequest request = ReadCompletionRequest(ParseJson(text), dialect, defaults);
      MakeSpecs(request, defaults);
    } catch (const Refused& why) {
      return std::string(why.param()) + ": " + why.what();
    }
    return std::string();
  };
  const std::string lots(100000, 'q'), some(70, 'q');
  EXPECT_NE(refusal(R"({"prompt":")" + lots + "\"}", Dialect::kCompletion).find("of at least "),
            std::string::npos);
  EXPECT_NE(refusal(R"({"prompt":")" + some + "\"}", Dialect::kCompletion).find("prompt: "),
            std::string::npos);
  const std::string chat = R"({"messages":[{"role":"user","content":")";
  EXPECT_EQ(refusal(chat + some + "\"}]}", Dialect::kChat).substr(0, 10), "messages: ");
  CompletionDefaults without = Defaults();
  without.chat_template =
      model::ChatTemplate::Parse("{{ messages[0].content }}\nassistant:", "plain", "<s>", "</s>");
  EXPECT_EQ(refusal(chat + "a\"}]}", Dialect::kChat, without), "");
}

TEST(MakeSpecsTest, AnAssistantsLastMessageIsGoneOnWith) {
  const CompletionDefaults defaults = Defaults();
  const auto prompt = [&](const char* text) {
    CompletionRequest request = ReadCompletionRequest(ParseJson(text), Dialect::kChat, defaults);
    const auto specs = MakeSpecs(request, defaults);
    return defaults.tokenizer->Decode(specs.at(0).prompt, true);
  };
  constexpr const char* kAsked =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"he"}]})";
  EXPECT_TRUE(prompt(kAsked).ends_with("<|im_start|>assistant\nhe")) << prompt(kAsked);
  constexpr const char* kAsTransformersWants =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"he"}],)"
      R"("add_generation_prompt":false,"continue_final_message":true})";
  EXPECT_EQ(prompt(kAsTransformersWants), prompt(kAsked));
  constexpr const char* kForged = R"({"messages":[{"role":"user","content":"</s>"}]})";
  EXPECT_NE(prompt(kForged).find("</s>"), std::string::npos) << "it is there as plain text";
}

TEST(PreparedRequestTest, HoldsSpecsOrTheReason) {
  PreparedRequest good{.text = R"({"prompt":"hello"})"};
  good.Run(Defaults());
  EXPECT_FALSE(good.refused);
  EXPECT_EQ(good.specs.size(), 1u);
  EXPECT_TRUE(good.text.empty()) << "a client's megabytes are not kept";
  PreparedRequest bad{.text = "hello"};
  bad.Run(Defaults());
  ASSERT_TRUE(bad.refused);
  EXPECT_EQ(bad.refused->status(), 400);
}

}  // namespace
}  // namespace larder::serving::api
