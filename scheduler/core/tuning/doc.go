// Package tuning has the times and limits of a scheduler, and the configuration of how its workers
// are shared.
package tuning
