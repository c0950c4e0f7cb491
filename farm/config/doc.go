// Package config reads the YAML file that configures how users and builds share the workers of a
// scheduler, their permissions, and how sizes are learned. It is strict: an unknown name or an
// invalid value is an error that names file, line, column and field. It only reads the file, and
// has no goroutines.
package config
