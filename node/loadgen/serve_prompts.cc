#include "node/loadgen/serve_prompts.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/json_text.h"

namespace larder::node::inline loadgen {
namespace {

constexpr const char* kWords[] = {
    "the",  "a",    "of",   "to",    "and",   "in",    "is",    "was",   "he",   "for",
    "it",   "with", "as",   "his",   "on",    "be",    "at",    "by",    "had",  "not",
    "are",  "but",  "from", "or",    "have",  "an",    "they",  "which", "one",  "you",
    "were", "all",  "her",  "she",   "there", "would", "their", "we",    "him",  "been",
    "has",  "when", "who",  "will",  "no",    "more",  "if",    "out",   "so",   "up",
    "said", "what", "its",  "about", "than",  "into",  "them",  "can",   "only", "other",
    "time", "new",  "some", "could", "these", "two",   "may",   "first", "then", "do"};

LoadRequest OfLine(const std::string& line, size_t number, const std::string& path,
                   size_t output_tokens) {
  LoadRequest request;
  request.output_tokens = output_tokens;
  if (!line.starts_with('{')) {
    request.prompt = line;
    return request;
  }
  const auto parsed = TryParseJsonText<nlohmann::json>(line).value_or(nlohmann::json());
  if (!parsed.is_object() || !parsed.contains("prompt") || !parsed["prompt"].is_string()) {
    throw Error("{}:{}: not a JSON object with a \"prompt\"", path, number);
  }
  request.prompt = parsed["prompt"].get<std::string>();
  if (const auto length = parsed.find("output_len"); length != parsed.end()) {
    if (!length->is_number_unsigned() || *length == 0) {
      throw Error("{}:{}: \"output_len\" is not a number of tokens", path, number);
    }
    request.output_tokens = length->get<size_t>();
  }
  return request;
}

}  // namespace

std::string RandomWords(std::mt19937_64& random, size_t words) {
  std::string text;
  for (size_t w = 0; w < words; ++w) {
    if (w > 0) text += ' ';
    text += kWords[random() % std::size(kWords)];
  }
  return text;
}

std::vector<LoadRequest> RandomPrompts(size_t count, size_t words, size_t output_tokens,
                                       uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    LoadRequest& request = requests.emplace_back();
    request.prompt = RandomWords(random, words);
    request.output_tokens = output_tokens;
  }
  return requests;
}

std::vector<LoadRequest> PromptsOfFile(const std::string& path, size_t count,
                                       size_t output_tokens) {
  std::ifstream file(path);
  if (!file) throw Error("can't read the prompts of '{}': {}", path, std::strerror(errno));
  std::vector<LoadRequest> requests;
  std::string line;
  for (size_t number = 1; requests.size() < count && std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) requests.push_back(OfLine(line, number, path, output_tokens));
  }
  if (requests.empty()) throw Error("'{}' has no prompts; expected one per line", path);
  const size_t distinct = requests.size();
  while (requests.size() < count) requests.push_back(requests[requests.size() % distinct]);
  return requests;
}

}  // namespace larder::node::loadgen
