package farm

import "fmt"

// CacheWrites says who may write the action cache where callers are not known by name.
type CacheWrites string

// What may be chosen.
const (
	CacheWritesWorkers CacheWrites = "workers" // each the results of actions that it was given
	CacheWritesClients CacheWrites = "clients" // all who reach the port
)

// grantsFile has the key of what workers are granted, beside the storage.
const grantsFile = "grants.key"

// String returns the name of w.
func (w *CacheWrites) String() string { return string(*w) }

// Set makes w what is called name.
func (w *CacheWrites) Set(name string) error {
	switch CacheWrites(name) {
	case CacheWritesWorkers, CacheWritesClients:
		*w = CacheWrites(name)
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", name, CacheWritesWorkers, CacheWritesClients)
}

// Type says what the flag wants.
func (w *CacheWrites) Type() string { return "who" }
