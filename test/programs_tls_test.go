package test

import (
	"path/filepath"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
)

// testCertificates has a farm whose programs show each other who they are.
func testCertificates(f *farmTest) {
	a := certtest.New(f.T)
	as := func(cert, key string) []string {
		return []string{"--tls-ca", a.File, "--tls-client-cert", cert, "--tls-client-key", key}
	}
	cert, key := a.Server("scheduler")
	scheduler, address := f.scheduler("--data", filepath.Join(f.dir, "scheduler"),
		"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File)
	address = "grpcs://" + address
	data := filepath.Join(f.dir, "worker")
	f.Cleanup(func() { expectNoMounts(f.T, data) })
	worker := f.start(append([]string{
		"forerunner-worker", "--data", data, "--scheduler", address, "--storage", address, "--state", address,
	}, as(a.Client("worker", auth.WorkersGroup))...)...)
	worker.waitFor(&worker.stderr, readyLine)

	f.write("in/text", "hello\n")
	alice, operator := as(a.Client("alice")), as(a.Client("operator", auth.AdminsGroup))
	run := func(who []string, verb ...string) *process {
		return f.start(append(append([]string{"forerunner"}, verb...), append(who, "--remote", address)...)...)
	}
	exec := func(who []string) *process {
		return f.start(append(append([]string{"forerunner", "exec", "--remote", address, "--input", "in"}, who...), "--", "/bin/cat", "text")...)
	}
	exec(alice).expect(0, "hello\n", "executing")
	exec(alice).expect(0, "hello\n", "!executing")
	exec([]string{"--tls-ca", a.File}).expect(1, "", "show a client certificate (--tls-client-cert", "!no farm answers")
	exec(nil).expect(1, "", "unknown authority")
	run(alice, "workers", "drain", "host=*").expect(1, "", `alice may not call /forerunner.admin.Scheduler/Drain`, `"administer"`)
	run(operator, "workers", "drain", "slot=none").expect(0, "0 workers are drained by slot=none\n")
	worker.drain()
	scheduler.drain()
}
