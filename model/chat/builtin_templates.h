// The plain template of models that have none; the built-in ones are found by BuiltInTemplate
// (chat_template.h).
#pragma once

#include <string_view>

namespace larder::model::inline chat {

extern const std::string_view kPlainTemplate;

}  // namespace larder::model::chat
