// Package tuning has the times and bounds of a scheduler, and how its workers are shared.
package tuning
