package castest

import "testing"

func TestMemory(t *testing.T) {
	TestStore(t, func(t *testing.T) Store { return NewMemory(t.TempDir(), StoreBytes) })
}
