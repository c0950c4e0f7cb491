package uncharged

import (
	"errors"
	"os/exec"
	"strconv"
	"testing"
)

// TestListed compares the two ways to count.
func TestListed(t *testing.T) {
	n, err := listed("/proc/self/ns/mnt", 1<<20)
	if err != nil {
		t.Skip("only since Linux 6.11, and for root: ", err)
	}
	if want := described("/proc/self", 1<<20); n < want/2 || n > 2*want { // some come and go
		t.Errorf("%d mounts are listed, %d described", n, want)
	}
}

// TestFuller: of all namespaces one has more mounts than this one, whoever is in it.
func TestFuller(t *testing.T) {
	if _, err := Fuller(0); err != nil {
		t.Skip("only since Linux 6.12, and for root: ", err)
	}
	most := mountsOf("/proc/self", 1<<20) + 300
	for fuller := true; fuller; most *= 2 { // others may have more
		fuller, _ = Fuller(most)
	}
	command := exec.Command("unshare", "--mount", "sh", "-c", `i=0; while [ $i -lt "$0" ]; do mount --bind / /mnt; i=$((i+1)); done; echo; cat`,
		strconv.Itoa(most))
	in, err1 := command.StdinPipe()
	out, err2 := command.StdoutPipe()
	if err := errors.Join(err1, err2, command.Start()); err != nil {
		t.Skip(err)
	}
	defer func() { _ = command.Wait() }()
	defer in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if fuller, err := Fuller(most); !fuller || err != nil {
		t.Errorf("no namespace has more than %d mounts: %v", most, err)
	}
}
