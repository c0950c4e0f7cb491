package test

import (
	"fmt"
	"path/filepath"
	"regexp"
)

// testLiveOutput sees what a command prints before it has ended, and all of it once.
func testLiveOutput(f *farmTest) {
	farm, address := f.up(filepath.Join(f.dir, "data"))
	gate := filepath.Join(f.dir, "gate")
	client := f.execRemote(address, "--timeout", "50s", "--", "/bin/sh", "-c",
		fmt.Sprintf("echo first; echo warning >&2; until [ -e %s ]; do sleep 0.05; done; echo second", gate))
	client.waitFor(&client.stdout, regexp.MustCompile(`^first\n$`))
	client.waitFor(&client.stderr, regexp.MustCompile(`(?m)^warning$`))
	f.write("gate", "")
	client.expect(0, "first\nsecond\n", "warning\n", "!again")
	farm.drain()
}
