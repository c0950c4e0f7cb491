package uncharged

import "testing"

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
