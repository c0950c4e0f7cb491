#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inventory_generated.h"
#include "zstd.h"

namespace {

constexpr uint64_t kEntries = 20000;

std::vector<uint8_t> BuildListing() {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<inventory::Entry>> entries;
  for (uint64_t i = 0; i < kEntries; ++i) {
    auto name = builder.CreateString("file" + std::to_string(i));
    entries.push_back(inventory::CreateEntry(
        builder, name, i % 2 ? inventory::Kind_File : inventory::Kind_Symlink, i));
  }
  builder.Finish(inventory::CreateListing(builder, builder.CreateVector(entries)));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

class RoundTrip : public testing::TestWithParam<int> {};

TEST_P(RoundTrip, KeepsEveryEntry) {
  const std::vector<uint8_t> plain = BuildListing();
  std::vector<uint8_t> packed(ZSTD_compressBound(plain.size()));
  const size_t n =
      ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), GetParam());
  ASSERT_FALSE(ZSTD_isError(n)) << ZSTD_getErrorName(n);
  EXPECT_LT(n, plain.size() / 2);

  std::vector<uint8_t> back(plain.size());
  const size_t m = ZSTD_decompress(back.data(), back.size(), packed.data(), n);
  ASSERT_EQ(m, plain.size()) << ZSTD_getErrorName(m);

  flatbuffers::Verifier verifier(back.data(), back.size());
  ASSERT_TRUE(inventory::VerifyListingBuffer(verifier));
  const auto* listing = inventory::GetListing(back.data());
  ASSERT_EQ(listing->entries()->size(), kEntries);
  EXPECT_EQ(listing->entries()->Get(7)->size_bytes(), 7u);
  EXPECT_THAT(listing->entries()->Get(7)->name()->str(), testing::StartsWith("file"));
}

INSTANTIATE_TEST_SUITE_P(Levels, RoundTrip, testing::Values(1, 3, 9));

}  // namespace
