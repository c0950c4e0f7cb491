//go:build cluster

package bazel

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// openToClients are the access rules of a farm without authentication of clients.
const openToClients = `access:
- anyone: true
  may: [execute, read, write]
- groups: [forerunner-workers]
  may: [work]
`

// TestBazelOverTLS builds on a farm all of whose ports have TLS: Bazel calls the scheduler and the
// storage, the scheduler the storage, the worker both; the programs know each other by
// certificates. Debian's Bazel has no TLS (its Netty lacks ALPN). The old one has it, but shows no
// certificate, and a token not in all of its calls.
func TestBazelOverTLS(t *testing.T) {
	if os.Getuid() != 0 {
		programs.Needs(t, "a worker needs root")
	}
	bazel := Old(t)
	f := programs.New(t, programs.OwnSandbox)
	workspace := Plain(t)
	a := certtest.New(t)
	// secure returns the flags of a program that has one certificate for its ports and its calls.
	secure := func(name string, units ...string) []string {
		cert, key := a.Server(name, units...)
		return []string{
			"--data", filepath.Join(f.Dir, name), "--http", freeport.Address(t),
			"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File,
			"--tls-ca", a.File, "--tls-client-cert", cert, "--tls-client-key", key,
		}
	}
	config := f.Write("access.yaml", openToClients)
	store, storage := f.Scheduler(append(secure("storage"), "--config", config)...)
	storage = "grpcs://" + storage
	scheduler, address := f.Scheduler(append(secure("scheduler"), "--config", config, "--storage", storage)...)
	address = "grpcs://" + address
	f.Cleanup(func() { programs.ExpectNoMounts(t, filepath.Join(f.Dir, "worker")) })
	worker := f.Start(append([]string{
		"forerunner-worker", "--scheduler", address, "--storage", storage, "--state", address,
	}, secure("worker", auth.WorkersGroup)...)...)
	worker.WaitFor(&worker.Stderr, programs.ReadyLine)

	c := New(t, bazel, workspace, "--config=remote", "--tls_certificate="+a.File,
		"--remote_executor="+address, "--remote_cache="+storage)
	c.startup = append(c.startup, "--nosystem_rc")
	ExpectRunners(t, c.Build(t, "//genrules:shout_twice"), "remote")
	ExpectFile(t, workspace, "genrules/shouted.txt", "PLAIN\nPLAIN\n")
	c.Clean(t)
	ExpectRunners(t, c.Build(t, "//genrules:shout_twice"), "remote cache hit")
	c.Shutdown(t)
	worker.Drain()
	scheduler.Drain()
	store.Drain()
}
