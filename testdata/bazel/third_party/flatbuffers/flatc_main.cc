// flatc with one of its eighteen generators, the one for C++, and with the flags that are used here.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "flatbuffers/code_generator.h"
#include "flatbuffers/idl.h"
#include "flatbuffers/util.h"
#include "idl_gen_cpp.h"

namespace flatbuffers {

void LogCompilerWarn(const std::string& warning) { fprintf(stderr, "warning: %s\n", warning.c_str()); }

void LogCompilerError(const std::string& error) {
  fprintf(stderr, "error: %s\n", error.c_str());
  exit(1);
}

// The generator of C++ has one of gRPC services, which takes six files more.
bool GenerateCppGRPC(const Parser&, const std::string&, const std::string&) { return false; }

}  // namespace flatbuffers

int main(int argc, const char* argv[]) {
  flatbuffers::IDLOptions options;
  std::string folder, schema, text;
  for (int i = 1; i < argc; i++) {
    const std::string arg = argv[i];
    if (arg == "--cpp") {
      options.lang_to_generate |= flatbuffers::IDLOptions::kCpp;
    } else if (arg == "--gen-object-api") {
      options.generate_object_based_api = true;
    } else if (arg == "--gen-mutable") {
      options.mutable_buffer = true;
    } else if (arg == "--gen-compare") {
      options.gen_compare = true;
    } else if (arg == "--reflect-names") {
      options.mini_reflect = flatbuffers::IDLOptions::kTypesAndNames;
    } else if (arg == "-o" && i + 1 < argc) {
      folder = flatbuffers::ConCatPathFileName(argv[++i], "");
    } else {
      schema = arg;
    }
  }
  if (!flatbuffers::LoadFile(schema.c_str(), false, &text)) {
    flatbuffers::LogCompilerError("cannot read " + schema);
  }
  flatbuffers::Parser parser(options);
  const std::string beside = flatbuffers::StripFileName(schema);
  const char* include[] = {beside.c_str(), nullptr};
  if (!parser.Parse(text.c_str(), include, schema.c_str())) {
    flatbuffers::LogCompilerError(parser.error_);
  }
  const std::string name = flatbuffers::StripPath(flatbuffers::StripExtension(schema));
  const auto done = flatbuffers::NewCppCodeGenerator()->GenerateCode(parser, folder, name);
  return done == flatbuffers::CodeGenerator::Status::OK ? 0 : 1;
}
