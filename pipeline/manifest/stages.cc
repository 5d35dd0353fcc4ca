// The stages of a manifest by its text alone: the sockets that hold layers, in order, their
// attention sockets and slots.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/manifest/roles.h"
#include "pipeline/manifest/text.h"

namespace larder::pipeline::inline manifest {
namespace {

std::string AtStage(const Manifest& manifest, const StageSpec& stage) {
  return At(manifest.path, stage.socket->line,
            fmt::format("server \"{}\", socket \"{}\"", stage.server->name, stage.socket->name));
}

// The sockets that hold a stage's KV cache: its attention sockets, or the colocated socket itself.
std::vector<const SocketSpec*> KvHolders(const StageSpec& stage) {
  return stage.attention.empty() ? std::vector<const SocketSpec*>{stage.socket} : stage.attention;
}

struct SlotWishes {
  size_t given = 0, open = 0;  // sum of the sockets' `slots` keys; sockets without one
};
SlotWishes WishesOf(const StageSpec& stage) {
  SlotWishes wishes;
  for (const SocketSpec* socket : KvHolders(stage)) {
    wishes.given += socket->slots.value_or(0);
    wishes.open += socket->slots ? 0 : 1;
  }
  return wishes;
}

// The slots of the whole cluster: the model's key, else the most that one stage's sockets ask for,
// one each by default. A pipeline without any such key gets one slot per micro-batch in flight.
size_t TotalSlots(const Manifest& manifest, const std::vector<StageSpec>& stages) {
  if (manifest.slots != 0) return manifest.slots;
  size_t total = 1;
  bool said = false;
  for (const StageSpec& stage : stages) {
    const SlotWishes wishes = WishesOf(stage);
    said |= wishes.given != 0;
    total = std::max(total, wishes.given + wishes.open);
  }
  return said || stages.size() < 2 ? total : std::max(total, MaxInFlight(stages.size()));
}

}  // namespace

std::vector<StageSpec> StagesOf(const Manifest& manifest) {
  std::vector<StageSpec> stages;
  for (const ServerSpec& server : manifest.servers) {
    std::vector<Role> roles;
    for (const SocketSpec& socket : server.sockets)
      roles.push_back(DecideRole(server, socket).role);
    const bool one_weight_socket = std::count(roles.begin(), roles.end(), Role::kWeight) == 1;
    for (size_t i = 0; i < roles.size(); ++i) {
      if (!HoldsWeights(roles[i])) continue;
      StageSpec stage{&server, &server.sockets[i], {}};
      for (size_t k = 0; k < roles.size() && roles[i] == Role::kWeight; ++k) {
        const SocketSpec& other = server.sockets[k];
        const bool mine =
            other.for_socket.empty() ? one_weight_socket : other.for_socket == stage.socket->name;
        if (roles[k] == Role::kAttention && mine) stage.attention.push_back(&other);
      }
      for (const ServerSpec& elsewhere : manifest.servers) {
        if (&elsewhere == &server || roles[i] != Role::kWeight) continue;
        for (const SocketSpec& other : elsewhere.sockets) {
          if (other.for_socket == stage.socket->name) stage.attention.push_back(&other);
        }
      }
      stages.push_back(std::move(stage));
    }
  }
  std::stable_sort(stages.begin(), stages.end(), [](const StageSpec& a, const StageSpec& b) {
    return a.socket->layers.value_or(Range<size_t>{}).begin <
           b.socket->layers.value_or(Range<size_t>{}).begin;
  });
  return stages;
}

ServingSpec ServingOf(const Manifest& manifest) {
  for (const ServerSpec& server : manifest.servers) {
    for (const SocketSpec& socket : server.sockets) {
      if (socket.role == Role::kServing) return {&server, &socket};
    }
  }
  return {};
}

void CheckLayers(const Manifest& manifest) {
  const std::vector<StageSpec> stages = StagesOf(manifest);
  const StageSpec *with = nullptr, *without = nullptr;
  for (const StageSpec& stage : stages) (stage.socket->layers ? with : without) = &stage;
  if (with == nullptr) return;
  if (without != nullptr) {
    throw Error(
        "{}: no layers, but socket \"{}\" sets its own; expected layers = for every socket that "
        "holds weights, or for none",
        AtStage(manifest, *without), with->socket->name);
  }
  size_t next = 0;
  for (const StageSpec& stage : stages) {
    const Range<size_t> layers = *stage.socket->layers;
    if (layers.begin != next) {
      throw Error(
          "{}: layers = \"{}-{}\": expected it to begin with layer {}, after those of the stage "
          "before",
          AtStage(manifest, stage), layers.begin, layers.end - 1, next);
    }
    next = layers.end;
  }
}

std::vector<size_t> DecideSlots(const Manifest& manifest, const ServerSpec& server) {
  const std::vector<StageSpec> stages = StagesOf(manifest);
  const size_t total = TotalSlots(manifest, stages);
  std::vector<size_t> slots(server.sockets.size());
  for (size_t i = 0; i < slots.size(); ++i) {  // sockets that belong to no stage
    const SocketSpec& socket = server.sockets[i];
    if (HoldsKv(DecideRole(server, socket).role)) slots[i] = socket.slots.value_or(1);
  }
  for (const StageSpec& stage : stages) {
    const auto [given, open] = WishesOf(stage);
    if (total < given + open || (open == 0 && total != given)) {
      throw Error(
          "{}: slots = {}: the sockets with the KV cache of \"{}\" ask for {}{}; expected {}",
          At(manifest.path, 0, "[model]"), total, stage.socket->name, given,
          open != 0 ? fmt::format(" and {} of them take the rest, at least one each", open) : "",
          open != 0 ? fmt::format("at least {}", given + open) : fmt::format("{}", given));
    }
    size_t index = 0;  // even shares of the rest; the first sockets get the remainder
    for (const SocketSpec* socket : KvHolders(stage)) {
      const size_t rest = total - given;
      const size_t of =
          socket->slots ? *socket->slots : rest / open + (index++ < rest % open ? 1 : 0);
      for (size_t i = 0; i < slots.size(); ++i) {
        if (&server.sockets[i] == socket) slots[i] = of;
      }
    }
  }
  return slots;
}

std::string ModelFileOf(const Manifest& manifest, const std::string& model,
                        std::string_view socket) {
  const std::filesystem::path folder(model);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return model;
  for (const StageSpec& stage : StagesOf(manifest)) {
    const bool mine = stage.socket->name == socket ||
                      std::any_of(stage.attention.begin(), stage.attention.end(),
                                  [&](const SocketSpec* s) { return s->name == socket; });
    if (mine) return folder / (stage.socket->name + ".gguf");
  }
  const ServingSpec serving = ServingOf(manifest);
  return folder / ((serving.socket != nullptr ? serving.socket->name : "serving") + ".gguf");
}

}  // namespace larder::pipeline::manifest
