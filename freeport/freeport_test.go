package freeport

import (
	"net"
	"testing"
)

// TestAddress has many others listen at any port before the servers that got the addresses do.
func TestAddress(t *testing.T) {
	free := map[string]bool{}
	for range 50 {
		free[Address(t)] = true
	}
	for range 2000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if address := l.Addr().String(); free[address] {
			t.Errorf("another one listens at %s", address)
		}
		_ = l.Close()
	}
	for address := range free {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
