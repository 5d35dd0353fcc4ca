// POST /slots/{id}?action=save|restore|erase, as in llama-server. The actions take a while, so they
// are answered on the background thread.
#pragma once

#include <string>

#include "serving/http/http_parser.h"
#include "serving/net/http_routes.h"

namespace larder::serving::inline net {

// Throws Refused.
HttpReply AnswerSlotAction(const HttpRequest& request, ServerState& state, Tenant);

}  // namespace larder::serving::net
