#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pretokenizer/pretokenizer.h"

#include <pcre2.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "model/pretokenizer/utf8.h"

namespace larder::model::inline pretokenizer {
namespace {

// The model families' expressions as published, except for white space. Their engines' \s is
// Unicode's White_Space; PCRE2's \s also has U+180E. So it is spelt out: categories Z, tab to
// carriage return, next line.
#define SPACE "\\p{Z}\\t-\\r\\x{85}"
#define WORDS_WITH_NUMBERS(number)                                                   \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number "| ?[^" SPACE \
  "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
constexpr char kLlama3[] = WORDS_WITH_NUMBERS("\\p{N}{1,3}");
constexpr char kQwen2[] = WORDS_WITH_NUMBERS("\\p{N}");
#undef WORDS_WITH_NUMBERS
#undef SPACE

struct Family {
  std::string_view name;
  const char* expression;
  bool ignore_merges;
};
constexpr Family kFamilies[] = {
    {"llama-bpe", kLlama3, true}, {"llama3", kLlama3, true},           {"llama-v3", kLlama3, true},
    {"qwen2", kQwen2, false},     {"deepseek-r1-qwen", kQwen2, false},
};

std::string Pcre2Message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// The PCRE2 objects of one match; each thread has its own.
struct MatchState {
  explicit MatchState(const pcre2_code* code)
      : context(pcre2_match_context_create(nullptr)),
        jit_stack(pcre2_jit_stack_create(size_t{32} << 10, size_t{16} << 20, nullptr)),
        data(pcre2_match_data_create_from_pattern(code, nullptr)) {
    LARDER_CHECK(context != nullptr && data != nullptr);
    pcre2_jit_stack_assign(context, nullptr, jit_stack);
    // The expressions take linear time for the texts they see, but megabytes of white space would
    // exceed the default limit.
    pcre2_set_match_limit(context, std::numeric_limits<uint32_t>::max());
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    if (jit_stack != nullptr) pcre2_jit_stack_free(jit_stack);
    pcre2_match_context_free(context);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_context* context;
  pcre2_jit_stack* jit_stack;
  pcre2_match_data* data;
};

// The length of the run at the start of `text` that is UTF-8 (`valid`) or is not.
size_t RunLength(std::string_view text, bool valid) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(length));
    if ((step.kind == Utf8Kind::kCharacter) != valid) break;
    length += step.bytes;
  }
  return length;
}

}  // namespace

struct PreTokenizer::Regex {
  ~Regex() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;

  // `text` is UTF-8.
  void Split(std::string_view text, MatchState& state,
             const std::function<void(std::string_view)>& word) const;
};

PreTokenizer::PreTokenizer(std::string_view name, std::string_view source) {
  const Family* family = nullptr;
  for (const Family& known : kFamilies) {
    if (known.name == name) family = &known;
  }
  if (family == nullptr) {
    throw Error(
        "{}: key 'tokenizer.ggml.pre' is '{}', supported are 'llama-bpe' (also 'llama3', "
        "'llama-v3') and "
        "'qwen2' (also "
        "'deepseek-r1-qwen')",
        source, name);
  }
  ignore_merges_ = family->ignore_merges;

  auto regex = std::make_unique<Regex>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(family->expression), PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  LARDER_CHECK(regex->code != nullptr);
  // Without a JIT (hardened kernels forbid it) pcre2_match interprets: it is slower and gives the
  // same words.
  (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
  regex_ = std::move(regex);
}

PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::Split(std::string_view text,
                         const std::function<void(std::string_view)>& word) const {
  MatchState state(regex_->code);
  while (!text.empty()) {
    const size_t valid = RunLength(text, true);
    regex_->Split(text.substr(0, valid), state, word);
    text.remove_prefix(valid);
    const size_t invalid = RunLength(text, false);
    if (invalid > 0) word(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

void PreTokenizer::Regex::Split(std::string_view text, MatchState& state,
                                const std::function<void(std::string_view)>& word) const {
  size_t done = 0;
  while (done < text.size()) {
    // NO_UTF_CHECK: the caller has checked the text; PCRE2 would check the whole rest again for
    // each word.
    const int matched = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    done, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (matched < 0 && matched != PCRE2_ERROR_NOMATCH) {
      throw Error("tokenizer: PCRE2 gave up at byte {} of the text: {}; split the text", done,
                  Pcre2Message(matched));
    }
    // Every character matches one of the alternatives, so a match begins at `done` and is not
    // empty.
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
    LARDER_CHECK(matched > 0 && range[0] == done && range[1] > done);
    word(text.substr(done, range[1] - done));
    done = range[1];
  }
}

}  // namespace larder::model::pretokenizer
