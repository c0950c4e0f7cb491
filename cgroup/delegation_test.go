package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// delegated skips a test where this process is not alone in a v2 group with controllers,
// as it is under "make test-cgroup2".
func delegated(t *testing.T) (own string) {
	t.Helper()
	around, err := lookAround()
	if err != nil {
		t.Fatal(err)
	}
	own, ok := around.inUnified()
	has, err := words(filepath.Join(own, "cgroup.controllers"))
	if !ok || err != nil || len(has) < len(controllers) || own == "/sys/fs/cgroup" {
		t.Skip("make test-cgroup2 runs it")
	}
	return own
}

func TestAloneInADelegatedGroup(t *testing.T) {
	own := delegated(t)
	p := openParent(t, Options{Name: testName(t), Version: 2})
	if err := errors.Join(p.Missing()...); err != nil {
		t.Errorf("missing: %v", err)
	}
	if pids, err := pidsIn(own); err != nil || len(pids) != 0 {
		t.Errorf("in the delegated group: %v, %v", pids, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	pids, err := pidsIn(own)
	if err != nil || len(pids) != 1 || pids[0] != os.Getpid() {
		t.Errorf("in the delegated group at the end: %v, %v", pids, err)
	}
	if left, err := words(filepath.Join(own, "cgroup.subtree_control")); err != nil || len(left) != 0 {
		t.Errorf("still handed down: %q, %v", left, err)
	}
}

func TestNotAloneInADelegatedGroup(t *testing.T) {
	own := delegated(t)
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait() // killed
	}()
	p := openParent(t, Options{Name: testName(t), Version: 2})
	lacks := p.Missing()
	if len(lacks) != len(controllers) {
		t.Fatalf("missing: %v", lacks)
	}
	if text := lacks[0].Error(); !strings.Contains(text, own) || !strings.Contains(text, "other processes") {
		t.Errorf("missing: %v", text)
	}
	// Functions that need no controller still work.
	s, err := p.Slot("0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(c.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := s.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
