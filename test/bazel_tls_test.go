//go:build cluster

package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
)

// openToClients are the rights of a farm that does not ask its clients who they are.
const openToClients = `access:
- anyone: true
  may: [execute, read, write]
- groups: [forerunner-workers]
  may: [work]
`

// TestBazelOverTLS builds on a farm all of whose ports have TLS: Bazel calls the scheduler and the storage, the
// scheduler the storage, the worker both; the programs know each other by certificates. Debian's Bazel has no
// TLS (its Netty lacks ALPN). The old one has it, but shows no certificate, and a token not in all of its calls.
func TestBazelOverTLS(t *testing.T) {
	if os.Getuid() != 0 {
		bazelNeeds(t, "a worker needs root")
	}
	bazel := oldBazel(t)
	f := &farmTest{T: t, programs: buildPrograms(t), dir: sharedDir(t), env: ownSandbox}
	workspace := t.TempDir()
	if err := os.CopyFS(workspace, os.DirFS("../testdata/bazel")); err != nil {
		t.Fatalf("copy workspace: %v", err)
	}
	a := certtest.New(t)
	// secure returns the flags of a program that has one certificate for its ports and its calls.
	secure := func(name string, units ...string) []string {
		cert, key := a.Server(name, units...)
		return []string{
			"--data", filepath.Join(f.dir, name), "--http", freeAddress(t),
			"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File,
			"--tls-ca", a.File, "--tls-client-cert", cert, "--tls-client-key", key,
		}
	}
	config := f.write("access.yaml", openToClients)
	store, storage := f.scheduler(append(secure("storage"), "--config", config)...)
	storage = "grpcs://" + storage
	scheduler, address := f.scheduler(append(secure("scheduler"), "--config", config, "--storage", storage)...)
	address = "grpcs://" + address
	f.Cleanup(func() { expectNoMounts(t, filepath.Join(f.dir, "worker")) })
	worker := f.start(append([]string{
		"forerunner-worker", "--scheduler", address, "--storage", storage, "--state", address,
	}, secure("worker", auth.WorkersGroup)...)...)
	worker.waitFor(&worker.stderr, readyLine)

	c := newBazelClient(t, bazel, workspace, "--config=remote", "--tls_certificate="+a.File,
		"--remote_executor="+address, "--remote_cache="+storage)
	c.startup = append(c.startup, "--nosystem_rc")
	expectRunners(t, c.build(t, "//genrules:shout_twice"), "remote")
	expectFile(t, workspace, "genrules/shouted.txt", "PLAIN\nPLAIN\n")
	c.clean(t)
	expectRunners(t, c.build(t, "//genrules:shout_twice"), "remote cache hit")
	c.shutdown(t)
	worker.drain()
	scheduler.drain()
	store.drain()
}
