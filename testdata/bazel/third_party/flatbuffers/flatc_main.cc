// flatc with one of its eighteen generators, the one for C++.
#include <cstdio>
#include <cstdlib>

#include "flatbuffers/flatc.h"
#include "flatbuffers/idl.h"
#include "flatbuffers/util.h"
#include "idl_gen_cpp.h"

static void Warn(const flatbuffers::FlatCompiler*, const std::string& warning, bool) {
  fprintf(stderr, "warning: %s\n", warning.c_str());
}

static void Error(const flatbuffers::FlatCompiler*, const std::string& error, bool, bool) {
  fprintf(stderr, "error: %s\n", error.c_str());
  exit(1);
}

namespace flatbuffers {

void LogCompilerWarn(const std::string& warning) { Warn(nullptr, warning, false); }
void LogCompilerError(const std::string& error) { Error(nullptr, error, false, false); }

// The generator of C++ has one of gRPC services, which takes six files more.
bool GenerateCppGRPC(const Parser&, const std::string&, const std::string&) { return false; }

}  // namespace flatbuffers

int main(int argc, const char* argv[]) {
  flatbuffers::FlatCompiler::InitParams params;
  params.warn_fn = Warn;
  params.error_fn = Error;
  flatbuffers::FlatCompiler flatc(params);
  flatc.RegisterCodeGenerator({"c", "cpp", "", "Generate C++ headers for tables/structs"},
                              flatbuffers::NewCppCodeGenerator());
  return flatc.Compile(flatc.ParseFromCommandLineArguments(argc, argv));
}
