#include "serving/net/slot_routes.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "serving/fields/json_fields.h"
#include "serving/stored/list_query.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

constexpr std::string_view kPath = "/slots/";

// The number of /slots/NUMBER.
SlotId SlotOf(const std::string& path) {
  const std::string_view text = std::string_view(path).substr(kPath.size());
  SlotId slot;
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, slot.value);
  if (failed != std::errc() || stop != end || !slot.valid())
    throw Refused(400, "the slot is {}: expected its number", Excerpt(std::string(text)))
        .On("id_slot");
  return slot;
}

}  // namespace

HttpReply AnswerSlotAction(const HttpRequest& request, ServerState& state, Tenant tenant) {
  if (state.service == nullptr) throw Refused(503, "Loading model");
  if (!state.slot_action)
    throw Refused(
        501, "slots cannot be saved, restored or erased here; start larder with --slot-save-path");
  const SlotId slot = SlotOf(request.path);
  const std::string action = QueryOf(request.target, "action");
  if (action != "save" && action != "restore" && action != "erase")
    throw Refused(400, "action is {}: expected save, restore or erase", Excerpt(action))
        .On("action");
  std::string name;
  if (action != "erase") {
    const Json body = ParseJson(request.body);
    name = JsonFields(body).String("filename", "");
  }
  const int64_t begin_ns = NowNs();
  const SlotActionResult result = state.slot_action(slot, action, name, tenant);
  if (!result.error.empty()) throw Refused(result.status, "{}", result.error);
  const double ms = SecondsSince(begin_ns) * 1e3;
  json reply = {{"id_slot", slot.value}};
  if (action == "erase") {
    reply["n_erased"] = result.tokens;
  } else {
    const bool saves = action == "save";
    reply["filename"] = name;
    reply[saves ? "n_saved" : "n_restored"] = result.tokens;
    reply[saves ? "n_written" : "n_read"] = result.bytes;
    reply["timings"] = {{saves ? "save_ms" : "restore_ms", ms}};
  }
  return {.body = Dump(reply), .headers = {}};
}

}  // namespace larder::serving::net
