// The folder of files and batches: who owns them, what outlives a process, and what is limited.
#include "serving/batch/batch_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "serving/batch/batch_store_testing.h"

namespace larder::serving::inline batch {
namespace {

int StatusOf(const std::function<void()>& what) {
  try {
    what();
    return 200;
  } catch (const Refused& refused) {
    return refused.status();
  }
}

class BatchStoreTest : public testing::Test {
 protected:
  std::string Folder() const { return folder_ / "batches"; }
  size_t FilesThere() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(Folder()))
      ++count;
    return count - 1;  // without the lock
  }
  TemporaryFolder folder_;
};

TEST_F(BatchStoreTest, AFileIsItsTenantsAndOutlivesTheProcess) {
  std::string id;
  {
    TestBatches here(Folder());
    const auto upload = here.store.NewUpload(Tenant{7});
    upload->Write("hello ");
    EXPECT_TRUE(here.store.Files(Tenant{7}).empty()) << "not before it is whole";
    upload->Write("world");
    id = upload->Finish("../../etc/passwd").id;
    EXPECT_EQ(here.Send("later", Tenant{7}).bytes, 5u);
    here.Send("another's", Tenant{8});
  }
  TestBatches here(Folder());
  EXPECT_EQ(here.log, std::vector<std::string>());
  const StoredFile* file = here.store.FindFile(id, Tenant{7});
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->name, "../../etc/passwd") << "a name is a text, not a path";
  EXPECT_EQ(file->bytes, 11u);
  EXPECT_EQ(here.Lines(id), std::vector<std::string>{"hello world"});
  EXPECT_EQ(here.store.FindFile(id, Tenant{8}), nullptr);
  EXPECT_EQ(here.store.FindFile(id, kEverybody), nullptr);
  ASSERT_EQ(here.store.Files(Tenant{7}).size(), 2u);
  EXPECT_EQ(here.store.Files(Tenant{7})[1]->id, id) << "the newest first";
  EXPECT_EQ(here.store.bytes(), 11u + 5 + 9);
  here.store.Remove(*file);
  EXPECT_EQ(here.store.FindFile(id, Tenant{7}), nullptr);
  EXPECT_EQ(here.store.bytes(), 5u + 9);
  EXPECT_EQ(FilesThere(), 4u);
}

TEST_F(BatchStoreTest, AnUploadThatEndsEarlyLeavesNothing) {
  std::string rest;
  {
    TestBatches here(Folder());
    here.store.NewUpload(Tenant{1})->Write("x");
    EXPECT_EQ(here.store.bytes(), 0u);
    EXPECT_EQ(FilesThere(), 0u);
    rest = Folder() + "/" + NewId("file-");  // as of a process that was killed
    std::ofstream(rest) << "half";
    std::ofstream(rest + ".json.tmp") << "{";
    std::ofstream(Folder() + "/notes") << "the operator's";
    std::ofstream(Folder() + "/" + NewId("file-") + ".json") << "{}";
  }
  TestBatches here(Folder());
  EXPECT_FALSE(std::filesystem::exists(rest));
  EXPECT_FALSE(std::filesystem::exists(rest + ".json.tmp"));
  EXPECT_TRUE(std::filesystem::exists(Folder() + "/notes"));
  ASSERT_EQ(here.log.size(), 1u) << "a damaged file is left out, and said";
  EXPECT_NE(here.log[0].find("damaged"), std::string::npos) << here.log[0];
}

// The answers of a batch whose record is damaged or of another version are not removed as
// leftovers.
TEST_F(BatchStoreTest, ABatchThatCannotBeReadKeepsItsAnswers) {
  std::string record, before;
  {
    TestBatches here(Folder());
    here.Begin();
    const std::string id = here.Create(here.Send(TestRequest("a") + TestRequest("b")).id);
    EXPECT_EQ(here.Run(1), 1u);
    record = here.store.PathOf(id) + ".json";
  }
  std::getline(std::ifstream(record), before, '\0');
  std::ofstream(record) << R"({"version": 2})";
  {
    TestBatches here(Folder());
    EXPECT_EQ(here.log.size(), 1u);
    here.Begin();
  }
  std::ofstream(record) << before;
  TestBatches here(Folder());
  here.Begin();
  EXPECT_EQ(here.Run(), 1u) << "one of two was there";
}

TEST_F(BatchStoreTest, WhatClientsCanMakeItKeepHasLimits) {
  TestBatches here(Folder(), {.disk_bytes = 100,
                              .tenant_bytes = 60,
                              .file_bytes = 50,
                              .files = 7,
                              .tenant_files = 4,
                              .uploads = 3,
                              .tenant_uploads = 2});
  const auto sends = [&](size_t bytes, uint64_t tenant) {
    return StatusOf([&] { here.Send(std::string(bytes, 'x'), Tenant{tenant}); });
  };
  EXPECT_EQ(sends(51, 1), 413) << "a file";
  EXPECT_EQ(sends(50, 1), 200);
  EXPECT_EQ(sends(11, 1), 413) << "a tenant's";
  EXPECT_EQ(sends(10, 1), 200);
  EXPECT_EQ(sends(41, 2), 413) << "in all";
  EXPECT_EQ(here.store.bytes(), 60u) << "what was refused takes no room";
  EXPECT_EQ(sends(0, 1), 200);
  EXPECT_EQ(sends(0, 1), 200);
  EXPECT_EQ(sends(0, 1), 413) << "a tenant's files";
  EXPECT_EQ(sends(0, 2), 200);
  EXPECT_EQ(sends(0, 2), 200);
  {
    const auto one = here.store.NewUpload(Tenant{2}), two = here.store.NewUpload(Tenant{2});
    EXPECT_EQ(StatusOf([&] { here.store.NewUpload(Tenant{2}); }), 429) << "a tenant's uploads";
    const auto three = here.store.NewUpload(Tenant{3});
    EXPECT_EQ(StatusOf([&] { here.store.NewUpload(Tenant{4}); }), 429) << "all uploads";
  }
  EXPECT_EQ(sends(0, 3), 200);
  EXPECT_EQ(sends(0, 4), 413) << "all files";
  here.store.Remove(*here.store.Files(Tenant{1}).back());
  EXPECT_EQ(sends(0, 4), 200);
}

TEST_F(BatchStoreTest, BatchesHaveLimitsAndOldOnesAreForgotten) {
  TestBatches here(Folder(), {.tenant_unfinished = 2, .tenant_batches = 3});
  here.Begin();
  const std::string input = here.Send(TestRequest("a")).id;
  const std::string first = here.Create(input);
  here.Create(input);
  EXPECT_EQ(StatusOf([&] { here.Create(input); }), 429);
  EXPECT_EQ(here.Run(), 2u);
  for (int i = 0; i < 2; ++i) {
    here.Create(input);
    here.Run();
  }
  EXPECT_EQ(here.store.Batches(kEverybody).size(), 3u);
  EXPECT_EQ(here.store.FindBatch(first, kEverybody), nullptr);
  EXPECT_EQ(here.store.Files(kEverybody).size(), 5u) << "its answers are the client's to delete";
}

TEST_F(BatchStoreTest, TheFolderIsItsUsersAlone) {
  {
    TestBatches here(Folder());
    EXPECT_THROW(TestBatches{Folder()}, Error) << "one process's at a time";
  }
  for (const mode_t mode : {0750, 0705, 0755}) {
    ::chmod(Folder().c_str(), mode);
    EXPECT_THROW(TestBatches{Folder()}, Error) << mode;
  }
  ::chmod(Folder().c_str(), 0700);
  TestBatches{Folder()};
}

TEST(BatchIdTest, IsLongAndNothingElse) {
  const std::string id = NewId("file-");
  EXPECT_TRUE(IsId("file-", id));
  EXPECT_NE(NewId("file-"), id);
  const std::string digits(32, 'a');
  for (const std::string& trick :
       {std::string("file-"), "file-" + digits + "a", "file-" + digits.substr(1), "batch_" + digits,
        "file-../" + digits.substr(3), "file-" + digits.substr(1) + "A",
        "file-" + digits.substr(1) + std::string(1, '\0')})
    EXPECT_FALSE(IsId("file-", trick)) << trick;
}

}  // namespace
}  // namespace larder::serving::batch
