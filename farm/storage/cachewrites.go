package farm

import "fmt"

// CacheWrites is who may write the action cache without authentication.
type CacheWrites string

// The choices.
const (
	CacheWritesWorkers CacheWrites = "workers" // each the results of actions that it was given
	CacheWritesClients CacheWrites = "clients" // all who reach the port
)

// grantsFile has the key of workers' grants, beside the storage.
const grantsFile = "grants.key"

// String returns the name of w.
func (w *CacheWrites) String() string { return string(*w) }

// Set parses name.
func (w *CacheWrites) Set(name string) error {
	switch CacheWrites(name) {
	case CacheWritesWorkers, CacheWritesClients:
		*w = CacheWrites(name)
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", name, CacheWritesWorkers, CacheWritesClients)
}

// Type is the type of the flag.
func (w *CacheWrites) Type() string { return "who" }
