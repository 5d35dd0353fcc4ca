// Stored responses: who may read them, which are dropped when there is no room, and which the next
// process finds.
#include "serving/history/response_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"

namespace larder::serving::inline history {
namespace {

using nlohmann::json;

constexpr Tenant kAnn{1}, kBob{2};

std::string Id(size_t number) { return fmt::format("resp_a-{}", number); }
std::string Items(const std::string& text) {
  return json::array({{{"role", "user"}, {"content", text}}}).dump();
}

// A store, and what its files log.
struct Kept {
  explicit Kept(const ResponseQuota& quota = {}, const std::string& folder = "") : store(quota) {
    if (folder.empty()) return;
    store.Open({.folder = folder,
                .log = [this](const std::string& line) { log.push_back(line); },
                .failed = [this](const char* what) { log.emplace_back(what); },
                .pin = {}});
  }
  void Add(size_t number, size_t previous = 0, Tenant tenant = kAnn,
           const std::string& text = "hello") {
    std::shared_ptr<const StoredTurn> before;
    if (previous != 0) before = store.Find(Id(previous), tenant)->turn;
    store.Add(Id(number), tenant, before, Items(text), Items("answer"),
              json{{"id", Id(number)}, {"object", "response"}}.dump());
  }
  // The ids that there are, of 1 to 9.
  std::string There(Tenant tenant = kAnn) {
    std::string there;
    for (size_t number = 1; number <= 9; ++number) {
      if (store.Has(Id(number)) && store.Find(Id(number), tenant)) there += std::to_string(number);
    }
    return there;
  }
  size_t Depth(size_t number) { return store.Find(Id(number), kAnn)->turn->depth; }

  std::vector<std::string> log;
  ResponseStore store;
};

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

TEST(ResponseStoreTest, AResponseIsItsTenantsOnly) {
  Kept kept;
  kept.Add(1);
  EXPECT_EQ(
      json::parse(kept.store.Find(Id(1), kAnn)->Text()),
      (json{{"id", Id(1)}, {"object", "response"}, {"output", json::parse(Items("answer"))}}));
  EXPECT_FALSE(kept.store.Find(Id(1), kBob));
  EXPECT_FALSE(kept.store.Find(Id(2), kAnn));
  EXPECT_FALSE(kept.store.Remove(Id(1), kBob));
  EXPECT_TRUE(kept.store.Has(Id(1)));
  EXPECT_TRUE(kept.store.Remove(Id(1), kAnn));
  EXPECT_FALSE(kept.store.Remove(Id(1), kAnn));
  EXPECT_EQ(kept.store.bytes(), 0u);
}

TEST(ResponseStoreTest, TheUnusedOnesGoFirst) {
  Kept kept({.responses = 3});
  for (size_t number = 1; number <= 3; ++number) kept.Add(number);
  kept.store.Find(Id(1), kAnn);
  kept.Add(4);
  EXPECT_EQ(kept.There(), "134");
  kept.Add(5, 0, kBob);
  EXPECT_EQ(kept.There(), "34") << "the look-ups just now were in the order of the numbers";
  EXPECT_EQ(kept.There(kBob), "5");
}

TEST(ResponseStoreTest, ATenantCannotTakeAnothersRoom) {
  Kept kept({.responses = 8, .tenant_responses = 2});
  kept.Add(1, 0, kBob);
  for (size_t number = 2; number <= 9; ++number) kept.Add(number);
  EXPECT_EQ(kept.There(), "89");
  EXPECT_EQ(kept.There(kBob), "1");
}

TEST(ResponseStoreTest, BytesAreBounded) {
  const std::string text(10000, 'x');
  Kept kept({.bytes = 35000, .tenant_bytes = 25000});
  for (size_t number = 1; number <= 3; ++number) kept.Add(number, 0, kAnn, text);
  EXPECT_EQ(kept.There(), "23");
  kept.Add(4, 0, kBob, text);
  EXPECT_EQ(kept.There(), "23");
  kept.Add(5, 0, kBob, text);
  EXPECT_EQ(kept.There(), "23");
  EXPECT_EQ(kept.There(kBob), "5");
  EXPECT_LE(kept.store.bytes(), 35000u);
  kept.Add(6, 0, kAnn, std::string(25000, 'x'));
  EXPECT_EQ(kept.There(), "23") << "it is too large itself, so no other had to go";
  EXPECT_EQ(kept.There(kBob), "5");
  const auto before = kept.store.Find(Id(3), kAnn)->turn;
  EXPECT_TRUE(kept.store.Fits(before.get(), 10000));
  EXPECT_FALSE(kept.store.Fits(before.get(), 15000));
}

TEST(ResponseStoreTest, WhatOthersGoOnFromStaysWithThem) {
  Kept kept;
  kept.Add(1, 0, kAnn, "first");
  kept.Add(2, 1);
  const size_t bytes = kept.store.bytes();
  kept.store.Remove(Id(1), kAnn);
  EXPECT_EQ(kept.There(), "2");
  EXPECT_GT(kept.store.bytes(), bytes / 2);
  const auto turn = kept.store.Find(Id(2), kAnn)->turn;
  EXPECT_EQ(turn->previous->input, Items("first"));
  kept.store.Remove(Id(2), kAnn);
  EXPECT_GT(kept.store.bytes(), 0u) << "a request that goes on from it has it, and it counts";
  kept.store.Add(Id(3), kAnn, turn, Items("c"), Items("d"), "{}");
  EXPECT_EQ(kept.Depth(3), 3u);
}

TEST(ResponseStoreTest, ALongConversationEndsWithoutADeepStack) {
  Kept kept({.responses = 2});
  for (size_t i = 1; i <= kMostTurns; ++i) kept.Add(i, i - 1);
  EXPECT_EQ(kept.Depth(kMostTurns), kMostTurns);
  EXPECT_EQ(kept.store.size(), 2u);
  kept.store.Remove(Id(kMostTurns - 1), kAnn);
  kept.store.Remove(Id(kMostTurns), kAnn);
  EXPECT_EQ(kept.store.bytes(), 0u);
}

TEST(ResponseFilesTest, TheNextProcessHasThem) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/.responses";
  std::string text;
  {
    Kept kept({}, path);
    kept.Add(1, 0, kAnn, "first");
    kept.Add(2, 1);
    kept.Add(3);
    kept.Add(4, 0, kBob);
    kept.Add(5, 4, kBob);
    kept.store.Remove(Id(1), kAnn);
    kept.store.Remove(Id(3), kAnn);
    text = kept.store.Find(Id(2), kAnn)->Text();
  }
  EXPECT_EQ(Names(path), (std::vector<std::string>{"resp_a-2.json", "resp_a-4.json",
                                                   "resp_a-5.json", "turn_a-1.json"}));
  struct stat about {};
  ASSERT_EQ(::stat((path + "/turn_a-1.json").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  {
    Kept kept({}, path);
    EXPECT_EQ(kept.There(), "2");
    EXPECT_EQ(kept.There(kBob), "45");
    EXPECT_EQ(kept.store.Find(Id(2), kAnn)->Text(), text);
    EXPECT_EQ(kept.store.Find(Id(2), kAnn)->turn->previous->input, Items("first"));
    EXPECT_EQ(kept.log, std::vector<std::string>());
    kept.store.Remove(Id(2), kAnn);
  }
  EXPECT_EQ(Names(path), (std::vector<std::string>{"resp_a-4.json", "resp_a-5.json"}))
      << "the turn that was kept for it is gone, too";
  const Kept smaller({.responses = 1}, path);
  EXPECT_EQ(smaller.store.size(), 1u);
}

TEST(ResponseFilesTest, DamagedFilesAreLeftOutWithALine) {
  const TemporaryFolder folder;
  {
    Kept kept({}, folder.path());
    for (size_t number = 1; number <= 4; ++number) kept.Add(number);
    kept.Add(5, 1);
  }
  const auto path = [&](const char* name) { return folder.path() + "/" + name; };
  std::filesystem::resize_file(path("resp_a-1.json"), 100);
  std::filesystem::resize_file(path("resp_a-2.json"), 0);
  std::ofstream(path("resp_a-3.json")) << R"({"version":2})";
  std::ofstream(path("resp_a-6.json.tmp")) << "half";
  std::ofstream(path("resp_..")) << "not ours";
  Kept kept({}, folder.path());
  EXPECT_EQ(kept.There(), "4");
  ASSERT_EQ(kept.log.size(), 4u);
  for (const std::string& line : kept.log) {
    EXPECT_TRUE(line.ends_with("it is ignored, and its file stays")) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path("resp_a-6.json.tmp")));
  EXPECT_TRUE(std::filesystem::exists(path("resp_..")));
}

TEST(ResponseFilesTest, AFolderIsOneProcessesAndItsUsers) {
  const TemporaryFolder folder;
  Kept kept({}, folder.path());
  EXPECT_THROW(Kept({}, folder.path()), Error);
}

TEST(ResponseFilesTest, AProcessThatWasKilledWhileItHidATurnHasHiddenIt) {
  const TemporaryFolder folder;
  {
    Kept kept({}, folder.path());
    kept.Add(1);
    kept.Add(2, 1);
  }
  std::filesystem::copy_file(folder.path() + "/resp_a-1.json", folder.path() + "/turn_a-1.json");
  // As Hide writes it: without the response.
  std::ifstream file(folder.path() + "/resp_a-1.json");
  json turn = json::parse(file);
  turn.erase("response");
  std::ofstream(folder.path() + "/turn_a-1.json") << turn.dump();
  Kept kept({}, folder.path());
  EXPECT_EQ(kept.There(), "2");
  EXPECT_EQ(kept.Depth(2), 2u);
}

}  // namespace
}  // namespace larder::serving::history
