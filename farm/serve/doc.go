// Package serve is how a program is called: its ports, with what stands before them (TLS, who calls, how much is
// taken in of each), and what every program shows of itself over HTTP: health, readiness, metrics, profiles.
//
// What it serves others register. Servers end with the context, or with the function that came with them; readiness
// asks each probe in a goroutine of its own, of which there is one at a time. Locks are held for no I/O.
package serve
