// Dies by a signal, which must be reported as a failed test, not as a broken farm.
#include <csignal>
#include <cstdio>

int main() {
  std::puts("about to abort");
  std::fflush(stdout);
  std::raise(SIGABRT);
}
