// Package record defines small records for the packages that use them (profiles, statistics of size
// classes, records of runs) and for the stores that keep them (package records), so that neither
// imports the other.
//
// Most records are hints: actions are correct without them. Careful hides the failures of a store
// from callers that wait for a hint.
package record
