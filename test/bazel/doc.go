// Package bazel runs real Bazels on workspaces of this module, for tests that build through a farm:
// Debian's bazel-bootstrap, and an old one of npm. It reads what Bazel recorded of a build, and
// knows what the targets of testdata/bazel make.
//
// Builds that Start begins go on in a goroutine each, which ends before the test does; a Bazel
// server ends with the test that made its Client. There are no locks.
//
// Where the machine lacks something a test is skipped; with CI set in the environment it fails.
package bazel
