// POST /infill, as llama-server: code between a prefix and a suffix, for models with
// fill-in-the-middle tokens.
#include "serving/api/common_fields.h"
#include "serving/api/dialect_readers.h"

namespace larder::serving::inline api {
namespace {

constexpr size_t kMostExtras = 256;

}  // namespace

void ReadInfill(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request) {
  const model::Tokenizer& tokenizer = *defaults.tokenizer;
  const model::FimTokens& fim = tokenizer.fim();
  if (fim.prefix < 0 || fim.suffix < 0 || fim.middle < 0)
    throw Refused(
        501,
        "{} has no tokens to fill in the middle: expected a model of code, such as Qwen2.5-Coder",
        defaults.model);
  size_t bytes = 0;
  std::vector<TokenId> tokens;
  const auto add = [&](const std::string& text) {
    bytes += text.size();
    CheckTextFits(bytes, "input_prefix", defaults);
    const auto more = tokenizer.Encode(text, /*add_bos=*/false, /*parse_special=*/false);
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  if (tokenizer.wants_bos() && tokenizer.bos() >= 0) tokens.push_back(tokenizer.bos());
  if (const Json* extra = fields.Find("input_extra")) {
    if (!extra->is_array() || extra->size() > kMostExtras)
      JsonFields::Fail("input_extra", *extra,
                       fmt::format("an array of at most {} files", kMostExtras));
    if (fim.repository >= 0 && !extra->empty()) {
      tokens.push_back(fim.repository);
      add("project\n");
    }
    for (const Json& one : *extra) {
      const JsonFields part(one, "input_extra");
      if (!part.Has("text"))
        throw Refused(400, "input_extra.text is missing: expected a string").On("input_extra");
      const std::string name = part.String("filename", "file");
      if (fim.file >= 0) {
        tokens.push_back(fim.file);
        add(name + "\n");
      }
      add(part.String("text", "") + "\n");
    }
    if (fim.file >= 0 && !extra->empty()) {
      tokens.push_back(fim.file);
      add("this file\n");
    }
  }
  if (!fields.Has("input_prefix") && !fields.Has("input_suffix"))
    throw Refused(400, "input_prefix is missing: expected a string, with input_suffix")
        .On("input_prefix");
  tokens.push_back(fim.prefix);
  add(fields.String("input_prefix", "") + fields.String("prompt", ""));
  tokens.push_back(fim.suffix);
  add(fields.String("input_suffix", ""));
  tokens.push_back(fim.middle);
  request.prompts.emplace_back(std::move(tokens));
  ReadSampling(fields, defaults, request);
  ReadLimit(fields, {"n_predict", "max_tokens"}, defaults, request);
  if (const Json* stop = fields.Find("stop")) request.spec.stops = ReadStops("stop", *stop);
  const auto probs = static_cast<int>(fields.Integer("n_probs", 0, 0, kMostLogprobs));
  request.spec.logprobs = probs == 0 ? -1 : probs;
  ReadForm(fields, request);
  request.stream = fields.Bool("stream", false);
  ReadNative(fields, defaults, request);
  request.n = static_cast<size_t>(
      fields.Integer("n_cmpl", fields.Integer("n", 1, 1, kMostChoices), 1, kMostChoices));
  fields.Ignore({"cache_prompt", "t_max_prompt_ms", "n_cache_reuse", "backend_sampling"});
}

}  // namespace larder::serving::api
