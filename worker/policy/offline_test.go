package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissesNetwork(t *testing.T) {
	for _, test := range []struct {
		exit           int
		stdout, stderr string
		want           bool
	}{
		{exit: 1, stderr: "bad.cc:1:5: error: 'x' was not declared in this scope\n"},
		{exit: 1, stdout: "--- FAIL: TestGetaddrinfoParser\n"},
		{exit: 1, stderr: "Main.java:3: error: cannot find symbol UnknownHostException\n"},
		{exit: 1},
		{exit: 6, stderr: "6 tests failed\n"},
		{exit: 6, want: true},
		{exit: 6, stderr: "curl: (6) Could not resolve host: example.com\n", want: true},
		{exit: 7, stderr: "curl: (7) Failed to connect to 10.0.0.1 port 80 after 0 ms: Couldn't connect to server\n", want: true},
		{exit: 4, stderr: "wget: unable to resolve host address 'example.com'\n", want: true},
		{exit: 128, stderr: "ssh: Could not resolve hostname github.com: Temporary failure in name resolution\n", want: true},
		{exit: 1, stdout: "go: module x: Get \"https://proxy.golang.org/x\": dial tcp: lookup proxy.golang.org: no such host\n", want: true},
		{exit: 1, stdout: "npm ERR! code EAI_AGAIN\n", want: true},
		{exit: 1, stderr: "Caused by: java.net.UnknownHostException: repo1.maven.org\n", want: true},
		{exit: 1, stderr: strings.Repeat("noise\n", lastOutput) + "OSError: [Errno 101] Network is unreachable\n", want: true},
	} {
		dir := t.TempDir()
		stdout, stderr := filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
		err := errors.Join(os.WriteFile(stdout, []byte(test.stdout), 0o600), os.WriteFile(stderr, []byte(test.stderr), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		if got := MissesNetwork(test.exit, stdout, stderr); got != test.want {
			t.Errorf("exit code %d, %q, %.100q: %t, want %t", test.exit, test.stdout, test.stderr, got, test.want)
		}
	}
	if MissesNetwork(1, "/nonexistent/stdout", "/nonexistent/stderr") {
		t.Error("output that is gone misses the network")
	}
}
