#include "node/tasks/slot_files.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/ids.h"
#include "base/own_folder.h"

namespace larder::node::inline tasks {
namespace {

constexpr int kMostWaitMs = 5000;  // for a moment between steps

}  // namespace

serving::SlotActions MakeSlotActions(const std::string& folder,
                                     const pipeline::SlotFileOptions& options,
                                     pipeline::Scheduler& scheduler, std::function<void()> nudge) {
  MakeOwnFolder(folder);
  return [folder, options, &scheduler, nudge = std::move(nudge)](
             SlotId slot, const std::string& action,
             const std::string& name) -> serving::SlotActionResult {
    using Kind = pipeline::SlotOrder::Kind;
    pipeline::SlotOrder order = {
        .kind = action == "save"      ? Kind::kSave
                : action == "restore" ? Kind::kRestore
                                      : Kind::kErase,
        .slot = slot,
        .contents = {},
        .on_given_up =
            [slot, name](const std::string& why) {
              spdlog::warn("slot {}: what was restored from {} is gone: {}", slot.value, name, why);
            },
        .error = {}};
    if (slot.index() >= scheduler.slots().size())
      return {.status = 400,
              .error = fmt::format("there is no slot {}; there are {}", slot.value,
                                   scheduler.slots().size())};
    const std::string path = folder + "/" + name;
    if (order.kind != Kind::kErase) {
      if (const std::string why = pipeline::WhyNotFileName(name); !why.empty())
        return {.status = 400, .error = "filename: " + why};
    }
    try {
      size_t bytes = 0;
      if (order.kind == Kind::kRestore) {
        order.contents = pipeline::ReadSlotFile(path, options);
        std::error_code gone;
        bytes = std::filesystem::file_size(path, gone);
      }
      scheduler.Execute(order, nudge, kMostWaitMs);
      if (!order.error.empty()) return {.status = order.later ? 503 : 400, .error = order.error};
      if (order.kind == Kind::kSave) bytes = pipeline::WriteSlotFile(path, options, order.contents);
      return {.tokens = order.tokens, .bytes = bytes, .error = {}};
    } catch (const Error& failed) {
      return {.status = order.kind == Kind::kRestore ? 400 : 500, .error = failed.what()};
    }
  };
}

}  // namespace larder::node::tasks
