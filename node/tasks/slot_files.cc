#include "node/tasks/slot_files.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/ids.h"
#include "base/own_folder.h"

namespace larder::node::inline tasks {
namespace {

constexpr int kMostWaitMs = 5000;  // for a moment between steps

using Kind = pipeline::SlotOrder::Kind;
using Result = serving::SlotActionResult;

class SlotFolder {
 public:
  SlotFolder(const SlotFolderOptions& options, pipeline::Scheduler& scheduler,
             std::function<void()> nudge)
      : options_(options), scheduler_(scheduler), nudge_(std::move(nudge)) {
    MakeOwnFolder(options_.folder);
  }

  Result Do(SlotId slot, const std::string& action, const std::string& name,
            serving::Tenant tenant) {
    const std::lock_guard lock(mutex_);  // the scheduler takes one order at a time
    const Kind kind = action == "save"      ? Kind::kSave
                      : action == "restore" ? Kind::kRestore
                                            : Kind::kErase;
    if (slot.index() >= scheduler_.slots().size())
      return {.status = 400,
              .error = fmt::format("there is no slot {}; there are {}", slot.value,
                                   scheduler_.slots().size())};
    if (kind != Kind::kErase) {
      if (const std::string why = pipeline::WhyNotFileName(name); !why.empty())
        return {.status = 400, .error = "filename: " + why};
    }
    try {
      return Execute(kind, slot, name, tenant);
    } catch (const Error& failed) {
      if (kind == Kind::kRestore) return {.status = 400, .error = WithoutFolder(failed.what())};
      spdlog::warn("slot {} is not saved: {}", slot.value, failed.what());
      return {.status = 500, .error = "the server can't do this now; its log says why"};
    }
  }

 private:
  Result Execute(Kind kind, SlotId slot, const std::string& name, serving::Tenant tenant) {
    const std::string path = options_.folder + "/" + name;
    pipeline::SlotOrder order = {
        .kind = kind,
        .slot = slot,
        .contents = {},
        .owner = tenant == serving::kEverybody ? std::nullopt
                                               : std::optional(static_cast<uint64_t>(tenant)),
        .on_given_up =
            [slot, name](const std::string& why) {
              spdlog::warn("slot {}: what was restored from {} is gone: {}", slot.value, name, why);
            },
        .error = {}};
    size_t bytes = 0;
    // The name of another key's file is taken, as if it were nobody's to see.
    if (kind != Kind::kErase && order.owner) {
      const auto owner = pipeline::TenantOfSlotFile(path);
      if (owner && *owner != static_cast<uint64_t>(tenant))
        return {.status = 404, .error = "filename: there is no file of yours of this name"};
    }
    if (kind == Kind::kRestore) {
      order.contents = pipeline::ReadSlotFile(path, options_.files);
      bytes = SizeOf(path);
    }
    scheduler_.Execute(order, nudge_, kMostWaitMs);
    if (!order.error.empty())
      return {.status = order.foreign ? 404 : order.later ? 503 : 400, .error = order.error};
    if (kind == Kind::kSave) {
      if (const std::string why = WhyNoRoom(path, order.contents); !why.empty())
        return {.status = 413, .error = why};
      bytes = pipeline::WriteSlotFile(path, options_.files, order.contents);
    }
    return {.tokens = order.tokens, .bytes = bytes, .error = {}};
  }

  static uint64_t SizeOf(const std::filesystem::path& path) {
    std::error_code gone;
    const uint64_t bytes = std::filesystem::file_size(path, gone);
    return gone ? 0 : bytes;
  }

  std::string WhyNoRoom(const std::string& path, const pipeline::SlotContents& contents) const {
    uint64_t all = contents.bytes() + contents.tokens.size() * sizeof(int32_t);
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder, gone)) {
      // it takes the place of one of its name
      if (entry.is_regular_file(gone) && entry.path() != path) all += SizeOf(entry.path());
    }
    if (all <= options_.most_bytes) return "";
    return fmt::format(
        "saved slots would have {:.1f} MB of the {:.1f} that they may have: save over an old one, "
        "or ask the operator for more (--slot-save-disk)",
        static_cast<double>(all) * 1e-6, static_cast<double>(options_.most_bytes) * 1e-6);
  }

  // The folder is the server's affair.
  std::string WithoutFolder(std::string text) const {
    const std::string folder = options_.folder + "/";
    for (size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }

  const SlotFolderOptions options_;
  pipeline::Scheduler& scheduler_;
  const std::function<void()> nudge_;
  std::mutex mutex_;
};

}  // namespace

serving::SlotActions MakeSlotActions(const SlotFolderOptions& options,
                                     pipeline::Scheduler& scheduler, std::function<void()> nudge) {
  const auto folder = std::make_shared<SlotFolder>(options, scheduler, std::move(nudge));
  return [folder](SlotId slot, const std::string& action, const std::string& name,
                  serving::Tenant tenant) { return folder->Do(slot, action, name, tenant); };
}

}  // namespace larder::node::tasks
