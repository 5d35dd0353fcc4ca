// Grammars of arbitrary text, as GBNF and as JSON schemas: they compile or are refused with one
// line, in time and memory that are counted; what the masks allow is accepted, for some tokens. The
// first input byte chooses the kind, the second seeds the choice of tokens.
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/counted_testing.h"
#include "base/error.h"
#include "serving/constraint/constraint.h"
#include "serving/constraint/constraint_testing.h"
#include "serving/grammar/grammar.h"
#include "serving/grammar/json_schema.h"

namespace larder::serving::inline constraint {
namespace {

std::shared_ptr<const Grammar> Compile(uint8_t kind, std::string_view text) {
  if (kind % 3 == 0) return Grammar::FromGbnf(text);
  if (kind % 3 == 1) return Grammar::FromRegex(text);
  return Grammar::FromJsonSchema(ParseSchemaText(text));
}

void Check(uint8_t kind, uint32_t seed, std::string_view text) {
  std::shared_ptr<const Grammar> grammar;
  try {
    const CountedReading counted(text);
    grammar = Compile(kind, text);
  } catch (const Error& error) {
    LARDER_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
    return;
  }
  const auto vocabulary = JsonVocabulary();
  Constraint constraint(std::make_shared<Automaton>(grammar, vocabulary), {});
  std::vector<uint64_t> mask(vocabulary->words());
  for (int step = 0; step < 6; ++step) {
    if (constraint.Mask(mask) != Constraint::Allowed::kSome) return;
    std::vector<TokenId> allowed;
    for (TokenId token = 0; static_cast<size_t>(token) < vocabulary->size(); ++token) {
      if (Bit(mask, token) && !vocabulary->IsEnd(token)) allowed.push_back(token);
    }
    if (allowed.empty()) return;
    seed = seed * 1664525 + 1013904223;
    LARDER_CHECK(constraint.Accept(allowed[(seed >> 8) % allowed.size()]));
  }
}

}  // namespace
}  // namespace larder::serving::constraint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  larder::serving::Check(data[0], data[1], {reinterpret_cast<const char*>(data) + 2, size - 2});
  return 0;
}
