package storage

import "fmt"

// CacheWrites defines who may write the action cache without authentication.
type CacheWrites string

// The choices.
const (
	Workers CacheWrites = "workers" // each the results of its own actions
	Clients CacheWrites = "clients" // everybody who reaches the port
)

// String returns the name of w.
func (w *CacheWrites) String() string { return string(*w) }

// Set parses name.
func (w *CacheWrites) Set(name string) error {
	switch CacheWrites(name) {
	case Workers, Clients:
		*w = CacheWrites(name)
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", name, Workers, Clients)
}

// Type returns the type of the flag.
func (w *CacheWrites) Type() string { return "who" }
