// Reads a schema and JSON from files that Bazel brings beside it, and a struct of a generated header.
#include <cstdio>
#include <cstring>
#include <string>

#include "alignment_test_generated.h"
#include "flatbuffers/idl.h"
#include "flatbuffers/util.h"

static int failures = 0;

static void Expect(bool ok, const char* what) {
  if (ok) return;
  printf("FAILED: %s\n", what);
  failures++;
}

static void TextAndBack(const std::string& folder) {
  std::string schema, json;
  Expect(flatbuffers::LoadFile((folder + "monster_test.fbs").c_str(), false, &schema), "schema");
  Expect(flatbuffers::LoadFile((folder + "monsterdata_test.golden").c_str(), false, &json), "JSON");
  const std::string include = folder + "include_test";
  const char* includes[] = {folder.c_str(), include.c_str(), nullptr};

  flatbuffers::Parser parser;
  Expect(parser.Parse(schema.c_str(), includes), "the schema is read");
  Expect(parser.Parse(json.c_str(), includes), "the JSON is read");
  std::string text;
  Expect(flatbuffers::GenText(parser, parser.builder_.GetBufferPointer(), &text) == nullptr, "text is written");
  Expect(text == json, "the text is that of the file");
}

static void Struct() {
  flatbuffers::FlatBufferBuilder builder;
  const BadAlignmentLarge large(7);
  OuterLargeBuilder outer(builder);
  outer.add_large(&large);
  builder.Finish(outer.Finish());
  const auto* read = flatbuffers::GetRoot<OuterLarge>(builder.GetBufferPointer());
  Expect(read->large()->var_0() == 7, "a struct is read");
}

int main(int argc, const char* argv[]) {
  if (argc != 3 || strcmp(argv[1], "--test_path") != 0) {
    printf("usage: flatbuffers_test --test_path FOLDER\n");
    return 2;
  }
  TextAndBack(argv[2]);
  Struct();
  if (failures == 0) printf("ALL TESTS PASSED\n");
  return failures != 0;
}
