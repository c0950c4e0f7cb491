// Package roster has the known workers, by their keys and by the connections over which they call.
//
// The caller's worker type embeds a Member and has everything else.
package roster
