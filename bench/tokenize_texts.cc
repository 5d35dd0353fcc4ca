// What Larder makes of many texts, for test/tokenizers/: `words NAME` the lengths of the words
// that the pre-tokenizer NAME cuts, `ids FILE` the ids that the vocabulary of a GGUF file gives.
// Standard input has the texts, each behind its length; standard output has a list for each, behind
// its length. Numbers are 32 bits, little-endian.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/gguf/gguf.h"
#include "model/pretokenizer/pretokenizer.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::bench {
namespace {

using Numbers = std::vector<uint32_t>;

std::function<Numbers(std::string_view)> Answer(std::string_view what, const std::string& of) {
  if (what == "words") {
    const auto cutter = std::make_shared<model::PreTokenizer>(of, "command line");
    return [cutter](std::string_view text) {
      Numbers lengths;
      cutter->Split(text, [&](std::string_view word) {
        lengths.push_back(static_cast<uint32_t>(word.size()));
      });
      return lengths;
    };
  }
  const auto file = model::GgufFile::Open(of);
  const auto tokenizer = model::Tokenizer::FromGguf(*file);
  return [file, tokenizer](std::string_view text) {
    const auto ids = tokenizer->Encode(text, false, true);
    return Numbers(ids.begin(), ids.end());
  };
}

int Run(std::string_view what, const std::string& of) {
  const auto answer = Answer(what, of);
  uint32_t bytes = 0;
  while (std::fread(&bytes, sizeof(bytes), 1, stdin) == 1) {
    std::string text(bytes, '\0');
    if (std::fread(text.data(), 1, bytes, stdin) != bytes) throw Error("a text is cut off");
    const Numbers numbers = answer(text);
    const auto count = static_cast<uint32_t>(numbers.size());
    std::fwrite(&count, sizeof(count), 1, stdout);
    std::fwrite(numbers.data(), sizeof(uint32_t), count, stdout);
  }
  return 0;
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: tokenize_texts words NAME | ids FILE, texts on standard input\n");
    return 2;
  }
  try {
    return larder::bench::Run(argv[1], argv[2]);
  } catch (const larder::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
