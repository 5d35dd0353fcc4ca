// Tenants: each is derived from a key and the server's secret, which is stored beside the tenants'
// files.
#include "serving/admission/api_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temporary_folder_testing.h"
#include "serving/admission/tenant_secret.h"

namespace larder::serving::inline admission {
namespace {

Tenant TenantOf(const std::string& key, const TenantSecret& secret) {
  ApiKeys keys(secret);
  keys = {"another-key", key};
  return *keys.Find(key);
}

TEST(Tenants, AreOfTheKeyAndTheSecret) {
  const TenantSecret secret = NewTenantSecret(), other = NewTenantSecret();
  EXPECT_NE(secret, other);
  const Tenant tenant = TenantOf("hunter22", secret);
  EXPECT_EQ(TenantOf("hunter22", secret), tenant);
  EXPECT_NE(TenantOf("hunter23", secret), tenant);
  EXPECT_NE(TenantOf("hunter22", other), tenant) << "nothing to be tested without the secret";
  EXPECT_NE(tenant, kEverybody);
  EXPECT_NE(tenant, Tenant{std::hash<std::string>()("hunter22")});
}

// The first eight bytes of HMAC-SHA-256 as a little-endian number. Files that an older version
// wrote must keep their owner.
TEST(Tenants, StayTheSameInLaterVersions) {
  TenantSecret secret;
  secret.fill(0x0b);
  EXPECT_EQ(TenantText(TenantOf("hunter22", secret)), "b3406bcf5851b296");
  EXPECT_EQ(TenantOfText("b3406bcf5851b296"), TenantOf("hunter22", secret));
}

TEST(Tenants, WithoutKeysAllAreOne) {
  const ApiKeys none(NewTenantSecret());
  EXPECT_EQ(none.Find("hunter22"), kEverybody);
}

TEST(TenantSecret, IsKeptInEveryFolderAndFoundInAny) {
  const TemporaryFolder root;
  const std::string cache = root / "made/cache", slots = root / "slots", batches = root / "batches";
  const TenantSecret secret = KeptTenantSecret({cache});
  EXPECT_EQ(KeptTenantSecret({cache}), secret);
  EXPECT_EQ(KeptTenantSecret({batches, cache, slots}), secret) << "new folders get it";
  EXPECT_EQ(KeptTenantSecret({slots}), secret);
  EXPECT_EQ(KeptTenantSecret({batches}), secret);
  struct stat about {};
  ASSERT_EQ(::stat((cache + "/.tenants").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(cache.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  EXPECT_NE(KeptTenantSecret({}), secret) << "nothing is kept: one of its own";
}

TEST(TenantSecret, IsNeverTakenFromElsewhere) {
  const TemporaryFolder root;
  const std::string a = root / "a", b = root / "b", file = a + "/.tenants";
  KeptTenantSecret({a});
  KeptTenantSecret({b});
  EXPECT_EQ(ErrorOf([&] {
              KeptTenantSecret({a, b});
            }),
            file + " and " + b +
                "/.tenants are different: the files beside them belong to keys of different "
                "servers; name a folder that this server has had, or an empty one");
  ::chmod(file.c_str(), 0644);
  EXPECT_NE(ErrorOf([&] { KeptTenantSecret({a}); }).find("expected a file of user"),
            std::string::npos);
  ::chmod(file.c_str(), 0600);
  std::ofstream(file) << "short";
  EXPECT_NE(ErrorOf([&] { KeptTenantSecret({a}); }).find("expected 32 bytes"), std::string::npos);
  std::filesystem::remove(file);
  std::filesystem::create_symlink(b + "/.tenants", file);
  EXPECT_THROW(KeptTenantSecret({a}), Error) << "no link is followed";
}

}  // namespace
}  // namespace larder::serving::admission
