#include "serving/constraint/constraint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "serving/constraint/constraint_testing.h"
#include "serving/constraint/mask_thread.h"
#include "serving/grammar/grammar.h"

namespace larder::serving::inline constraint {
namespace {

using Json = nlohmann::ordered_json;

std::shared_ptr<const Grammar> OfSchema(const char* schema) {
  return Grammar::FromJsonSchema(Json::parse(schema));
}

std::vector<std::shared_ptr<const Grammar>> Grammars() {
  return {
      OfSchema("true"),
      OfSchema(
          R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"enum":["abc","abd","x\"y"]},"maxItems":5}},"required":["name","age"]})"),
      OfSchema(
          R"({"type":"array","items":{"anyOf":[{"type":"string","minLength":3,"maxLength":70},{"type":"number"},{"$ref":"#"}]}})"),
      OfSchema(
          R"({"type":"object","properties":{"na":{"type":"null"}},"additionalProperties":{"type":"string","pattern":"^[a-z]{2,9}[0-9]*$"}})"),
      Grammar::FromGbnf(
          "root ::= e\ne ::= \"(\" e \")\" e | [a-z0-9]{1,3} | \"\\\"\" [^\"]* \"\\\"\""),
      Grammar::FromGbnf("root ::= .{0,40} \"!\""),
      Grammar::FromGbnf("root ::= [^\\n]{33,35}"),
      Grammar::FromGbnf("root ::= \"a\" (\"<|tool|>\" \"b\" | \"x<|tool|>y\") \"c\"?"),
      Grammar::FromGbnf("root ::= (\"a\" | \"aa\" | [a-c] \"b\"?){2,60} \"\\n\""),
  };
}

// A length and a form together: texts end, whatever is chosen on the way, and have the length.
TEST(Limits, NoChoiceIsADeadEnd) {
  struct Case {
    const char* schema;
    size_t least, most;
  };
  std::mt19937 random(7);
  for (const Case& one : std::vector<Case>{
           {R"({"type":"string","format":"email","maxLength":12})", 5, 12},
           {R"({"type":"string","format":"hostname","minLength":20,"maxLength":25})", 20, 25},
           {R"({"type":"string","format":"uri","maxLength":64})", 8, 64},
           {R"({"type":"string","pattern":"^(aaa|bb)*c?(dd)+$","minLength":9,"maxLength":9})", 9,
            9},
           {R"({"type":"string","pattern":"^(aaaa)*(b|ccc)$","minLength":3,"maxLength":6})", 3, 5},
           {R"({"type":"string","pattern":"^(a|\"b)+[c-e]*$","minLength":30})", 30, 1000}}) {
    const auto grammar = Grammar::FromJsonSchema(nlohmann::ordered_json::parse(one.schema));
    const auto automaton = std::make_shared<Automaton>(grammar, JsonVocabulary());
    for (int text = 0; text < 40; ++text) {
      StateId state = automaton->start();
      std::string said;
      while (!automaton->complete(state)) {
        ASSERT_LT(said.size(), 2000u);
        std::string bytes;
        for (int byte = 0; byte < 128; ++byte) {
          if (automaton->Step(state, static_cast<uint8_t>(byte)) != Automaton::kDead)
            bytes += static_cast<char>(byte);
        }
        ASSERT_FALSE(bytes.empty()) << one.schema << ": nothing may follow " << said;
        // Ends as soon as it may half of the time, so that endless forms have an end.
        const bool ends = bytes.find('"') != std::string::npos && said.size() > 1;
        said += ends && random() % 2 == 0 ? '"' : bytes[random() % bytes.size()];
        state = automaton->Step(state, static_cast<uint8_t>(said.back()));
      }
      const auto value = nlohmann::json::parse(said).get<std::string>();
      EXPECT_GE(value.size(), one.least) << one.schema << said;
      EXPECT_LE(value.size(), one.most) << one.schema << said;
    }
  }
}

// The oracle of masks: each token alone, byte by byte.
TEST(Masks, EqualWhatEachTokenGives) {
  const auto vocabulary = JsonVocabulary();
  std::mt19937 random(1);
  size_t states = 0;
  for (const auto& grammar : Grammars()) {
    for (int text = 0; text < 12; ++text) {
      const auto automaton = std::make_shared<Automaton>(grammar, vocabulary);
      const auto oracle = std::make_shared<Automaton>(grammar, vocabulary);
      Constraint constraint(automaton, {});
      StateId state = oracle->start();
      std::vector<uint64_t> mask(vocabulary->words());
      for (int step = 0; step < 60; ++step, ++states) {
        ASSERT_EQ(constraint.Mask(mask), Constraint::Allowed::kSome);
        std::vector<TokenId> allowed;
        for (TokenId token = 0; static_cast<size_t>(token) < vocabulary->size(); ++token) {
          const bool expected = vocabulary->IsEnd(token)
                                    ? oracle->complete(state)
                                    : oracle->StepToken(state, token) != Automaton::kDead;
          ASSERT_EQ(Bit(mask, token), expected)
              << "token " << token << " '" << vocabulary->bytes(token) << "' step " << step;
          if (expected && !vocabulary->IsEnd(token)) allowed.push_back(token);
        }
        ASSERT_EQ(constraint.complete(), oracle->complete(state));
        if (allowed.empty()) {
          EXPECT_TRUE(constraint.complete());
          break;
        }
        const TokenId token = allowed[random() % allowed.size()];
        ASSERT_TRUE(constraint.Accept(token));
        state = oracle->StepToken(state, token);
      }
    }
  }
  EXPECT_GT(states, 1000u);
}

TEST(Masks, AreTheSameAfterMemoryWasTidied) {
  const auto vocabulary = JsonVocabulary();
  const auto grammar = Grammar::FromGbnf("root ::= (\"a\" | \"b\" \"c\"){0,1000000} \"d\"");
  const auto automaton = std::make_shared<Automaton>(grammar, vocabulary);
  Constraint constraint(automaton, {}), copy = constraint;
  std::vector<uint64_t> mask(vocabulary->words());
  size_t most = 0;
  bool dropped = false;
  for (int i = 0; i < 400'000; ++i) {
    ASSERT_TRUE(constraint.Accept('a'));
    dropped = dropped || automaton->states() < most;
    most = std::max(most, automaton->states());
  }
  EXPECT_TRUE(dropped);
  ASSERT_EQ(constraint.Mask(mask), Constraint::Allowed::kSome);
  EXPECT_TRUE(Bit(mask, 'a') && Bit(mask, 'b') && Bit(mask, 'd') && !Bit(mask, 'c'));
  EXPECT_TRUE(constraint.Accept('b'));
  EXPECT_FALSE(constraint.Accept('d'));
  EXPECT_TRUE(copy.Accept('b'));
  EXPECT_TRUE(copy.Accept('c'));
  EXPECT_TRUE(copy.Accept('d'));
  EXPECT_TRUE(copy.complete());
}

TEST(Masks, AnAmbiguousGrammarHasABound) {
  const auto grammar = Grammar::FromGbnf(
      "root ::= s\ns ::= \"a\" s s t | \"a\" t s | \"a\"\nt ::= \"a\" s | \"a\" t s s | \"a\"");
  Automaton automaton(grammar, JsonVocabulary());
  StateId state = automaton.start();
  for (int i = 0; i < 100 && state > Automaton::kTooMany; ++i) state = automaton.Step(state, 'a');
  EXPECT_EQ(state, Automaton::kTooMany);
  std::vector<uint64_t> mask(JsonVocabulary()->words());
  EXPECT_FALSE(automaton.Mask(state, mask));
}

// A marker is the token that a tokenizer finds in its text, and its text only where there is none.
TEST(Masks, AMarkerIsItsTokenWhereThereIsOne) {
  const auto vocabulary = JsonVocabulary();
  for (const char* text : {"<|tool|>", "<tool>"}) {  // a control token, and one of the file's own
    SCOPED_TRACE(text);
    const TokenId token = JsonTokenizer()->Find(text);
    ASSERT_GE(token, 0);
    Automaton automaton(Grammar::FromGbnf(fmt::format(
                            "root ::= %token \"{}\" \"x\" | \"\\n\" %token \"{}\"", text, text)),
                        vocabulary);
    std::vector<uint64_t> mask(vocabulary->words());
    const auto allowed = [&](StateId state) {
      EXPECT_TRUE(automaton.Mask(state, mask));
      std::set<TokenId> tokens;
      for (size_t i = 0; i < vocabulary->size(); ++i) {
        if (Bit(mask, static_cast<TokenId>(i))) tokens.insert(static_cast<TokenId>(i));
      }
      return tokens;
    };
    EXPECT_EQ(allowed(automaton.start()),
              (std::set<TokenId>{token, '\n', JsonTokenizer()->Find("Ċ")}));
    const StateId behind = automaton.StepToken(automaton.start(), token);
    EXPECT_EQ(allowed(behind), (std::set<TokenId>{'x'}));
    EXPECT_EQ(automaton.KnownStepToken(automaton.start(), token), Automaton::kDead)
        << "not by bytes";
    EXPECT_EQ(allowed(automaton.Step(automaton.start(), '\n')), (std::set<TokenId>{token}));
    EXPECT_EQ(automaton.Step(automaton.start(), "<"), Automaton::kDead);
  }
  EXPECT_TRUE(Accepts(Grammar::FromGbnf("root ::= %token \"<none>\""), "<none>"));
  // Where text is free the token may be text, too: both go on.
  Automaton both(Grammar::FromGbnf("root ::= %token \"<tool>\" \"x\" | [^y]* \"y\""), vocabulary);
  const TokenId tool = JsonTokenizer()->Find("<tool>");
  const StateId state = both.StepToken(both.start(), tool);
  EXPECT_TRUE(both.complete(both.Step(state, "x")));
  EXPECT_TRUE(both.complete(both.Step(state, "y")));
  EXPECT_FALSE(both.complete(both.Step(both.Step(both.start(), "<tool>"), "x")));
  EXPECT_THROW(Grammar::FromGbnf("root ::= %token x"), Error);
}

TEST(Masks, ControlTokensOnlyWhereALiteralNamesThem) {
  const auto vocabulary = JsonVocabulary();
  const TokenId tool = JsonTokenizer()->Find("<|tool|>"), end = vocabulary->end_of_generation()[0];
  const auto named = std::make_shared<Automaton>(
      Grammar::FromGbnf("root ::= \"<|tool|>\\n{\" . \"<|eot_id|>\""), vocabulary);
  std::vector<uint64_t> mask(vocabulary->words());
  ASSERT_TRUE(named->Mask(named->start(), mask));
  EXPECT_TRUE(Bit(mask, tool));
  EXPECT_TRUE(Bit(mask, '<'));
  EXPECT_FALSE(Bit(mask, end));
  EXPECT_EQ(named->StepToken(named->start(), tool), named->Step(named->start(), "<|tool|>"));
  // Any text may hold the characters, but not the token; and data in a schema is text.
  for (const auto& grammar :
       {Grammar::FromGbnf("root ::= .*"), OfSchema(R"({"const":"<|tool|>"})")}) {
    Automaton automaton(grammar, vocabulary);
    StateId state = automaton.start();
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(automaton.Mask(state, mask));
      EXPECT_FALSE(Bit(mask, tool));
      state = automaton.Step(state, '"');
    }
  }
}

TEST(Masks, TokensThatTheVocabularyLacksAreForbidden) {
  const auto vocabulary = JsonVocabulary();
  Automaton automaton(Grammar::FromGbnf("root ::= .*"), vocabulary);
  std::vector<uint64_t> mask(vocabulary->words());
  ASSERT_TRUE(automaton.Mask(automaton.start(), mask));
  EXPECT_FALSE(Bit(mask, static_cast<TokenId>(vocabulary->size()) - 1));
  EXPECT_TRUE(Bit(mask, vocabulary->end_of_generation()[0]));
}

TEST(Constraint, IsFreeUpToATrigger) {
  const auto vocabulary = JsonVocabulary();
  const auto token = [&](std::string_view text) {
    for (TokenId id = 0; static_cast<size_t>(id) < vocabulary->size(); ++id) {
      if (vocabulary->bytes(id) == text) return id;
    }
    return TokenId{-1};
  };
  const auto automaton =
      std::make_shared<Automaton>(Grammar::FromGbnf("root ::= \"ab\""), vocabulary);
  Constraint constraint(automaton, {"<call>", "<|tool|>"});
  std::vector<uint64_t> mask(vocabulary->words());
  // One token has the trigger and what the grammar does not begin with.
  ASSERT_EQ(constraint.Mask(mask), Constraint::Allowed::kSome);
  EXPECT_FALSE(Bit(mask, token("<call>x")));
  EXPECT_TRUE(Bit(mask, token("x<call>")));
  EXPECT_TRUE(Bit(mask, 'q'));
  EXPECT_TRUE(constraint.complete());
  Constraint other = constraint;
  for (const char c : std::string("hello <ca")) ASSERT_TRUE(constraint.Accept(c));
  EXPECT_FALSE(constraint.active());
  ASSERT_TRUE(constraint.Accept(token("ll>")));
  EXPECT_TRUE(constraint.active());
  EXPECT_FALSE(constraint.complete());
  ASSERT_EQ(constraint.Mask(mask), Constraint::Allowed::kSome);
  EXPECT_TRUE(Bit(mask, 'a'));
  EXPECT_FALSE(Bit(mask, 'q'));
  EXPECT_FALSE(constraint.Accept('q'));
  ASSERT_TRUE(other.Accept(JsonTokenizer()->Find("<|tool|>")));
  EXPECT_TRUE(other.active());
  ASSERT_TRUE(other.Accept('a'));
  ASSERT_TRUE(other.Accept('b'));
  EXPECT_TRUE(other.complete());
}

// A step or a mask that was never made, or that another thread is making, is not waited for.
TEST(Constraint, AKnownTokenHasTheMaskOfAnyOther) {
  const auto vocabulary = JsonVocabulary();
  for (const auto& grammar : Grammars()) {
    const auto automaton = std::make_shared<Automaton>(grammar, vocabulary);
    std::mt19937 random(3);
    Constraint first(automaton, {}), second(automaton, {});
    std::vector<uint64_t> mask(vocabulary->words()), known(mask.size());
    ASSERT_EQ(first.Mask(mask), Constraint::Allowed::kSome);
    for (int step = 0; step < 40; ++step) {
      std::vector<TokenId> allowed;
      for (TokenId token = 0; static_cast<size_t>(token) < vocabulary->size(); ++token) {
        if (!vocabulary->IsEnd(token) && Bit(mask, token)) allowed.push_back(token);
      }
      if (allowed.empty()) break;
      const TokenId token = allowed[random() % allowed.size()];
      ASSERT_TRUE(first.Accept(token));
      ASSERT_EQ(first.Mask(mask), Constraint::Allowed::kSome);
      {
        const Automaton::Turn turn(*automaton);
        EXPECT_FALSE(second.AcceptKnown(token, known));
      }
      if (vocabulary->bytes(token).empty()) {  // control tokens are the thread's
        EXPECT_FALSE(second.AcceptKnown(token, known));
        ASSERT_TRUE(second.Accept(token));
        continue;
      }
      ASSERT_TRUE(second.AcceptKnown(token, known)) << step;
      EXPECT_EQ(known, mask) << step;
      EXPECT_EQ(second.complete(), first.complete());
    }
    Constraint fresh(std::make_shared<Automaton>(grammar, vocabulary), {});
    for (TokenId token = 0; static_cast<size_t>(token) < vocabulary->size(); ++token)
      EXPECT_FALSE(fresh.AcceptKnown(token, known));
  }
}

TEST(Constraint, ARequiredTriggerComesBeforeTheEnd) {
  const auto vocabulary = JsonVocabulary();
  const TokenId end = vocabulary->end_of_generation()[0];
  const auto automaton =
      std::make_shared<Automaton>(Grammar::FromGbnf("root ::= \"b\"?"), vocabulary);
  for (const bool required : {false, true}) {
    Constraint constraint(automaton, {"<call>"}, required);
    std::vector<uint64_t> mask(vocabulary->words(), ~uint64_t{0});
    ASSERT_NE(constraint.Mask(mask), Constraint::Allowed::kTooMuchWork);
    EXPECT_EQ(Bit(mask, end), !required);
    EXPECT_TRUE(Bit(mask, 'a'));
    EXPECT_EQ(constraint.complete(), !required);
    for (const char c : std::string("a<call>")) ASSERT_TRUE(constraint.Accept(c));
    ASSERT_EQ(constraint.Mask(mask), Constraint::Allowed::kSome);
    EXPECT_TRUE(Bit(mask, end));
    EXPECT_TRUE(constraint.complete());
  }
}

// Rules that every byte enters anew: a state has few configurations, but each step follows a chain
// of calls and leaves as many frames.
std::string ChainOfRules(size_t rules) {
  std::string text = "root ::= s\ns ::= r0\n";
  for (size_t i = 0; i < rules; ++i)
    text += fmt::format("r{} ::= r{} \"{}\"\n", i, i + 1, std::string(25, 'x'));
  return text + fmt::format("r{} ::= \"a\" s \"0\" | \"b\" s \"1\" | \"!\"\n", rules);
}

TEST(Automaton, AMasksWorkIsCountedWhereItIsDone) {
  const auto vocabulary = JsonVocabulary();
  std::vector<uint64_t> mask(vocabulary->words());
  size_t failed = 0;
  for (const size_t rules : {10u, 1000u, 12'000u}) {
    Automaton automaton(Grammar::FromGbnf(ChainOfRules(rules)), vocabulary);
    const bool made = automaton.Mask(automaton.start(), mask);
    failed += !made;
    EXPECT_LE(automaton.work(), 4'100'000u) << rules;
    EXPECT_LE(automaton.bytes(), Automaton::kMostBytes + (16u << 20)) << rules;
    // What is cached does not change where the bound is.
    EXPECT_EQ(automaton.Mask(automaton.start(), mask), made) << rules;
  }
  EXPECT_GT(failed, 0u);
}

TEST(Automaton, AMaskInPiecesIsTheSame) {
  const auto vocabulary = JsonVocabulary();
  const auto grammar = OfSchema(R"({"type":"object","properties":{"a":{"type":"array","items":
      {"enum":["x","yy",3]}},"b":{"type":"string","pattern":"^[a-z]{2,5}$"}}})");
  Automaton automaton(grammar, vocabulary), whole(grammar, vocabulary);
  std::vector<uint64_t> mask(vocabulary->words()), other(mask), want(mask);
  StateId state = automaton.start(), second = automaton.start(), reference = whole.start();
  automaton.Keep({&state, 1});
  automaton.Keep({&second, 1});
  for (const char c : std::string("{\"a\":[\"x\",3],\"b\":\"abc\"}")) {
    {
      Automaton::Walk walk(automaton, state, mask), beside(automaton, second, other);
      size_t pieces = 1;
      for (auto made = Automaton::Walk::Made::kNotYet; made != Automaton::Walk::Made::kWhole;
           ++pieces) {
        made = walk.GoOn(7);
        ASSERT_NE(made, Automaton::Walk::Made::kTooMuchWork);
        beside.GoOn(3);
        if (pieces % 5 == 0) {
          EXPECT_TRUE(automaton.DropUnused());
        }
      }
      EXPECT_GT(pieces, 2u);
    }
    ASSERT_TRUE(whole.Mask(reference, want));
    EXPECT_EQ(mask, want) << c;
    state = second = automaton.Step(state, static_cast<uint8_t>(c));
    reference = whole.Step(reference, static_cast<uint8_t>(c));
  }
  automaton.Release({&state, 1});
  automaton.Release({&second, 1});
}

TEST(MaskThread, AShortMaskDoesNotWaitForLongOnes) {
  const auto tokenizer = JsonTokenizer();
  const auto thread = MaskThread::Start(tokenizer, tokenizer->size(), 16);
  std::vector<std::unique_ptr<MaskedSequence>> heavy;
  for (int i = 0; i < 8; ++i)  // each has an automaton of its own
    heavy.push_back(thread->Open(Grammar::FromGbnf(ChainOfRules(3000)), {}));
  const auto light = thread->Open(Grammar::FromGbnf("root ::= \"a\"+"), {});
  light->Wait();
  EXPECT_TRUE(Bit(light->allowed(), 'a'));
  size_t done = 0;
  for (const auto& one : heavy) done += one->WaitFor(0);
  EXPECT_LT(done, heavy.size()) << "none of them has had more than a few turns";
  heavy.clear();  // closed while they are made
  light->Accept('a');
  light->Wait();
  EXPECT_EQ(light->failure(), "");
}

TEST(MaskThread, GivesTheMasksOfItsSequences) {
  const auto tokenizer = JsonTokenizer();
  const size_t vocab = tokenizer->size();
  const auto thread = MaskThread::Start(tokenizer, vocab, 4);
  const auto grammar =
      OfSchema(R"({"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]})");
  std::vector<std::unique_ptr<MaskedSequence>> sequences;
  for (int i = 0; i < 4; ++i) sequences.push_back(thread->Open(grammar, {}));
  for (const char c : std::string("{\"a\":true}")) {
    for (auto& sequence : sequences) {
      sequence->Wait();
      ASSERT_EQ(sequence->failure(), "");
      ASSERT_TRUE(Bit(sequence->allowed(), c));
      ASSERT_FALSE(Bit(sequence->allowed(), 'z'));
      ASSERT_FALSE(sequence->complete());
      sequence->Accept(c);
    }
  }
  sequences[0]->Wait();
  EXPECT_TRUE(sequences[0]->complete());
  EXPECT_TRUE(sequences[0]->only_the_end());
  sequences[1]->Wait();
  sequences[1]->Accept('z');
  sequences[1]->Wait();
  EXPECT_EQ(sequences[1]->failure(), "the grammar does not allow the chosen token");
  // The second time, only the text's first mask comes from the thread.
  const auto again = thread->Open(grammar, {});
  again->Wait();
  for (const char c : std::string("{\"a\":true}")) {
    ASSERT_TRUE(Bit(again->allowed(), c));
    again->Accept(c);
    EXPECT_EQ(again->asked(), 1u) << c;
    again->Wait();
  }
  EXPECT_TRUE(again->complete());
  EXPECT_TRUE(again->only_the_end());
  again->Accept('z');
  again->Wait();
  EXPECT_EQ(again->failure(), "the grammar does not allow the chosen token");
  const auto free = thread->Open(grammar, {"<call>"});
  free->Wait();
  EXPECT_FALSE(free->only_the_end());
}

}  // namespace
}  // namespace larder::serving::constraint
