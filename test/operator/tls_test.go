package operator

import (
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestCertificates has a farm whose programs authenticate each other with certificates.
func TestCertificates(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	a := certtest.New(f.T)
	as := func(cert, key string) []string {
		return []string{"--tls-ca", a.File, "--tls-client-cert", cert, "--tls-client-key", key}
	}
	cert, key := a.Server("scheduler")
	scheduler, address := f.Scheduler("--data", filepath.Join(f.Dir, "scheduler"),
		"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File)
	address = "grpcs://" + address
	data := filepath.Join(f.Dir, "worker")
	f.Cleanup(func() { programs.ExpectNoMounts(f.T, data) })
	worker := f.Start(append([]string{
		"forerunner-worker", "--data", data, "--scheduler", address, "--storage", address, "--state", address,
	}, as(a.Client("worker", auth.WorkersGroup))...)...)
	worker.WaitFor(&worker.Stderr, programs.ReadyLine)

	f.Write("in/text", "hello\n")
	alice, operator := as(a.Client("alice")), as(a.Client("operator", auth.AdminsGroup))
	run := func(who []string, verb ...string) *programs.Process {
		return f.Start(append(append([]string{"forerunner"}, verb...), append(who, "--remote", address)...)...)
	}
	exec := func(who []string) *programs.Process {
		return f.Start(append(append([]string{"forerunner", "exec", "--remote", address, "--input", "in"}, who...), "--", "/bin/cat", "text")...)
	}
	exec(alice).Expect(0, "hello\n", "done: ran for")
	exec(alice).Expect(0, "hello\n", "!ran for")
	exec([]string{"--tls-ca", a.File}).Expect(1, "", "present a client certificate (--tls-client-cert", "!no farm answers")
	exec(nil).Expect(1, "", "its certificate is of an authority that is not trusted here")
	run(alice, "workers", "drain", "host=*").Expect(1, "", `alice may not call /forerunner.admin.Scheduler/Drain`, `"administer"`)
	run(operator, "workers", "drain", "slot=none").Expect(2, "", "slot")
	run(operator, "workers", "drain", "host=none").Expect(0, "0 workers are drained by host=none\nwarning: no connected worker matches; the drain applies to workers that connect later\n")
	worker.Drain()
	scheduler.Drain()
}
