#include "serving/answer/answer_parser.h"
namespace larder::serving::inline answer {
class AnswerParser::Machine {};
AnswerParser::AnswerParser(AnswerParserOptions) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;
std::vector<AnswerDelta> AnswerParser::Add(std::string_view text) {
  return {{.kind = AnswerDelta::Kind::kContent, .call = 0, .text = std::string(text), .id = {}}};
}
std::vector<AnswerDelta> AnswerParser::Finish() { return {}; }
bool AnswerParser::called() const { return false; }
uint64_t AnswerIdSeed(std::string_view, uint64_t seed, size_t choice) { return seed + choice; }
bool WantsSpecialTokens(AnswerFormat) { return false; }
bool StartsInReasoning(AnswerFormat, std::string_view) { return false; }
AnswerFormat DetectAnswerFormat(std::string_view) { return AnswerFormat::kGeneric; }
}  // namespace larder::serving::answer
