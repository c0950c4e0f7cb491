// Package roster has the known workers, by their keys and by the connections that they call over.
//
// The caller's type of a worker embeds a Member and has everything else.
package roster
