#include "serving/batch/served_model.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/config/pooling.h"

namespace larder::serving::inline batch {

using nlohmann::json;

json ServedModel::ToJson() const {
  return {{"name", name},
          {"fingerprint", fmt::format("{:016x}", fingerprint)},
          {"engine", engine},
          {"chat_template", chat_template},
          {"context", context},
          {"vocab", vocab},
          {"slots", slots},
          {"biased", biased},
          {"pooling", pooling},
          {"dim", dim},
          {"tool_parser", tool_parser}};
}

ServedModel ServedModel::OfPlan(const json& plan) {
  try {
    const json& served = plan.at("served");
    ServedModel model = {.name = served.at("name").get<std::string>(),
                         .engine = served.at("engine").get<std::string>(),
                         .chat_template = served.at("chat_template").get<std::string>(),
                         .tool_parser = served.at("tool_parser").get<std::string>(),
                         .context = served.at("context").get<size_t>(),
                         .vocab = served.at("vocab").get<size_t>(),
                         .dim = served.at("dim").get<size_t>(),
                         .slots = served.at("slots").get<size_t>(),
                         .pooling = served.at("pooling").get<std::string>(),
                         .biased = served.at("biased").get<bool>()};
    const auto& hex = served.at("fingerprint").get_ref<const std::string&>();
    const char* end = hex.data() + hex.size();
    if (const auto [stop, failed] = std::from_chars(hex.data(), end, model.fingerprint, 16);
        failed != std::errc() || stop != end || model.context == 0 || model.vocab == 0 ||
        model.slots == 0 || !model::PoolingByName(model.pooling))
      throw Error("its plan is damaged");
    return model;
  } catch (const json::exception&) {
    throw Error("it does not say what it serves: expected `larder serve` of this version");
  }
}

std::string ServedModel::Differs(const ServedModel& other) const {
  if (fingerprint != other.fingerprint) return "it serves another model";
  if (name != other.name)
    return fmt::format("it calls its model \"{}\", not \"{}\"", other.name, name);
  if (engine != other.engine) return fmt::format("it is {}, not {}", other.engine, engine);
  if (context != other.context)
    return fmt::format("its context has {} tokens, not {}", other.context, context);
  if (vocab != other.vocab)
    return fmt::format("its vocabulary has {} tokens, not {}", other.vocab, vocab);
  if (chat_template != other.chat_template)
    return fmt::format("its chat template is \"{}\", not \"{}\"", other.chat_template,
                       chat_template);
  if (tool_parser != other.tool_parser)
    return fmt::format("its tool parser is {}, not {}", other.tool_parser, tool_parser);
  if (pooling != other.pooling)
    return fmt::format("its pooling is {}, not {}", other.pooling, pooling);
  if (other.biased)
    return "it was started with --logit-bias or --ignore-eos; give these to `larder batch` instead";
  return "";
}

}  // namespace larder::serving::batch
