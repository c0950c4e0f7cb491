// Package config reads the YAML file that says how users and builds share the workers of a
// scheduler, who may do what, and how sizes are learned. It is strict: whatever it does not know,
// and whatever makes no sense, is an error that names file, line, column and field.
//
// It puts nothing into force, and has no goroutines.
package config
