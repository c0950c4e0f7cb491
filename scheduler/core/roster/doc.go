// Package roster has the workers that are known, by their keys and by the connections that they call over.
//
// What else there is to know of a worker is the caller's: its type embeds a Member.
package roster
