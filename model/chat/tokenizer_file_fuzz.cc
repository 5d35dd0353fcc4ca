// A tokenizer from a hostile model file is made or refused; one that is made encodes and decodes
// any text. An input is a GGUF file, or text that is turned into one, so that mutations reach the
// tokenizer:
//   m MODEL    p PRE    t TYPE SCORE TOKEN    g MERGE    KEY ID (bos, eos, eot, eom, unk)
//   x TEXT to be encoded
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "model/chat/chat_template.h"
#include "model/gguf/gguf_testing.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline chat {
namespace {

using testing::Raw;
using testing::RawArray;
using testing::RawText;
using Type = GgufValueType;

constexpr size_t kMaxTextBytes = 4096;

std::string_view Word(std::string_view& line) {
  const size_t end = line.find(' ');
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end == line.npos ? line.size() : end + 1);
  return word;
}

// *text gets the text that the input wants to be encoded.
std::string FileOf(std::string_view input, std::string* text) {
  std::string types, scores, tokens, merges;
  uint64_t token_count = 0, merge_count = 0;
  testing::RawGguf file;
  while (!input.empty()) {
    const size_t end = input.find('\n');
    std::string_view line = input.substr(0, end);
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
    const std::string_view what = Word(line);
    if (what == "m") file.SetText("tokenizer.ggml.model", line);
    if (what == "p") file.SetText("tokenizer.ggml.pre", line);
    if (what == "t") {
      types += Raw(static_cast<int32_t>(std::strtol(std::string(Word(line)).c_str(), nullptr, 10)));
      scores += Raw(std::strtof(std::string(Word(line)).c_str(), nullptr));
      tokens += RawText(line);
      ++token_count;
    }
    if (what == "g") merges += RawText(line), ++merge_count;
    if (what == "x") *text += line;
    for (const auto& [name, key] :
         {std::pair("bos", "bos"), std::pair("eos", "eos"), std::pair("eot", "eot"),
          std::pair("eom", "eom"), std::pair("unk", "unknown")}) {
      if (what == name)
        file.SetU32(fmt::format("tokenizer.ggml.{}_token_id", key),
                    static_cast<uint32_t>(std::strtoll(std::string(line).c_str(), nullptr, 10)));
    }
    if (what == "flags") {  // add_bos, add_eos, add_space_prefix
      for (size_t i = 0; i < 3 && i < line.size(); ++i) {
        constexpr const char* kFlags[] = {"add_bos_token", "add_eos_token", "add_space_prefix"};
        file.Set(fmt::format("tokenizer.ggml.{}", kFlags[i]), Type::kBool,
                 Raw(uint8_t{line[i] == '1'}));
      }
    }
  }
  file.Set("tokenizer.ggml.token_type", Type::kArray, RawArray(Type::kI32, token_count, types));
  file.Set("tokenizer.ggml.scores", Type::kArray, RawArray(Type::kF32, token_count, scores));
  file.Set("tokenizer.ggml.tokens", Type::kArray, RawArray(Type::kString, token_count, tokens));
  file.Set("tokenizer.ggml.merges", Type::kArray, RawArray(Type::kString, merge_count, merges));
  return file.Bytes();
}

void Use(const std::shared_ptr<const Tokenizer>& tokenizer, std::string text) {
  try {
    ChatTemplate::OfModel(*tokenizer, "fuzz");
  } catch (const Error&) {  // the right answer to a bad template
  }
  // The vocabulary itself is a good text for its merges and special tokens.
  for (size_t id = 0; id < tokenizer->size() && text.size() < kMaxTextBytes; ++id)
    text += tokenizer->Piece(static_cast<TokenId>(id), true);
  text.resize(std::min(text.size(), kMaxTextBytes));
  for (const bool parse_special : {false, true}) {
    const std::vector<TokenId> ids = tokenizer->Encode(text, tokenizer->wants_bos(), parse_special);
    LARDER_CHECK(ids.size() <= 3 * text.size() + 16, "no text becomes more tokens than its bytes");
    for (const TokenId id : ids) {
      LARDER_CHECK(id >= 0 && static_cast<size_t>(id) < tokenizer->size(), "token {}", id);
      tokenizer->IsEndOfGeneration(id);
    }
    tokenizer->Decode(ids, parse_special);
    StreamDecoder decoder(tokenizer, parse_special);
    for (const TokenId id : ids) decoder.Add(id);
    decoder.Finish();
  }
  for (const TokenId id : {-1, 0, static_cast<TokenId>(tokenizer->size())})
    tokenizer->Piece(id, true);
}

void Check(std::string_view input) {
  static const int fd = ::memfd_create("tokenizer_file_fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  std::string text, file(input);
  if (!input.starts_with("GGUF")) file = FileOf(input, &text);
  LARDER_CHECK(::ftruncate(fd, 0) == 0 && ::pwrite(fd, file.data(), file.size(), 0) >= 0, "memfd");
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::FromGguf(*GgufFile::Open(path));
  } catch (const Error&) {  // the right answer to a bad file
    return;
  }
  Use(tokenizer, std::move(text));  // must not throw
}

}  // namespace
}  // namespace larder::model::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::model::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
