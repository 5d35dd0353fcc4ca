#include "serving/fields/sampler_fields.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace larder::serving::inline fields {
namespace {

// llama-server's letters: "edskypmxt" is its default order.
constexpr std::pair<char, SamplerStep> kLetters[] = {
    {'e', SamplerStep::kPenalties},  {'d', SamplerStep::kDry},
    {'s', SamplerStep::kTopNSigma},  {'k', SamplerStep::kTopK},
    {'y', SamplerStep::kTypicalP},   {'p', SamplerStep::kTopP},
    {'m', SamplerStep::kMinP},       {'x', SamplerStep::kXtc},
    {'t', SamplerStep::kTemperature}};

// Samplers of llama.cpp, now or once, that are off unless other fields turn them on. Clients name
// them anyway.
constexpr std::string_view kNotHere[] = {"tfs_z", "infill", "adaptive_p"};

// An array of names, or a text of letters.
std::vector<SamplerStep> ReadOrder(const Json& field) {
  const std::string expected = fmt::format("an array of at most {} of these names: {}",
                                           kMostSamplers, FormatSamplers(DefaultSamplers()));
  std::vector<SamplerStep> order;
  if (field.is_string()) {
    for (const char letter : field.get_ref<const std::string&>()) {
      const auto* found = std::ranges::find(kLetters, letter, &std::pair<char, SamplerStep>::first);
      if (found == std::end(kLetters)) JsonFields::Fail("samplers", field, expected);
      order.push_back(found->second);
    }
    return order;
  }
  if (!field.is_array() || field.size() > kMostSamplers)
    JsonFields::Fail("samplers", field, expected);
  for (const Json& one : field) {
    if (!one.is_string()) JsonFields::Fail("samplers", one, expected);
    const auto& name = one.get_ref<const std::string&>();
    if (std::ranges::find(kNotHere, name) != std::end(kNotHere)) continue;
    try {
      const SamplerStep step = SamplerByName(name);
      // Clients that send all names of all servers name a sampler twice.
      if (name == SamplerName(step) || std::ranges::find(order, step) == order.end())
        order.push_back(step);
    } catch (const Error&) {
      JsonFields::Fail("samplers", one, expected);
    }
  }
  return order;
}

std::vector<std::string> ReadBreakers(const Json& field) {
  const std::string expected = fmt::format("an array of at most {} texts, each of 1 to {} bytes",
                                           kMostDryBreakers, kMostDryBreakerBytes);
  std::vector<std::string> breakers;
  if (!field.is_array() || field.size() > kMostDryBreakers)
    JsonFields::Fail("dry_sequence_breakers", field, expected);
  for (const Json& text : field) {
    if (!text.is_string()) JsonFields::Fail("dry_sequence_breakers", text, expected);
    breakers.push_back(text.get<std::string>());
    if (breakers.back().empty() || breakers.back().size() > kMostDryBreakerBytes)
      JsonFields::Fail("dry_sequence_breakers", text, expected);
  }
  return breakers;
}

}  // namespace

void ReadSamplers(const JsonFields& fields, SamplingParams& p) {
  constexpr int64_t kMostInt = std::numeric_limits<int>::max();
  const auto whole = [&](const char* name, int value, int64_t least) {
    return static_cast<int>(fields.Integer(name, value, least, kMostInt));
  };
  p.typical_p = fields.Number("typical_p", p.typical_p);
  p.top_n_sigma = fields.Number("top_n_sigma", p.top_n_sigma);
  p.xtc_probability = fields.Number("xtc_probability", p.xtc_probability);
  p.xtc_threshold = fields.Number("xtc_threshold", p.xtc_threshold);
  p.min_keep = static_cast<size_t>(
      fields.Integer("min_keep", static_cast<int64_t>(p.min_keep), 0, kMostInt));
  p.dry_multiplier = fields.Number("dry_multiplier", p.dry_multiplier);
  p.dry_base = fields.Number("dry_base", p.dry_base);
  p.dry_allowed_length = whole("dry_allowed_length", p.dry_allowed_length, 0);
  p.dry_penalty_last_n = whole("dry_penalty_last_n", p.dry_penalty_last_n, -1);
  if (const Json* breakers = fields.Find("dry_sequence_breakers"))
    p.dry_sequence_breakers = ReadBreakers(*breakers);
  p.dynatemp_range = fields.Number("dynatemp_range", p.dynatemp_range);
  p.dynatemp_exponent = fields.Number("dynatemp_exponent", p.dynatemp_exponent);
  p.mirostat = static_cast<int>(fields.Integer("mirostat", p.mirostat, 0, 2));
  p.mirostat_tau = fields.Number("mirostat_tau", p.mirostat_tau);
  p.mirostat_eta = fields.Number("mirostat_eta", p.mirostat_eta);
  if (const Json* order = fields.Find("samplers")) p.samplers = ReadOrder(*order);
}

}  // namespace larder::serving::fields
