// Package reference writes what package settings knows for people and their editors: JSON schemas, commented
// examples and pages of the documentation, and the flags of commands. Tests use it: what is checked in must be what
// it writes, and "make generate" writes it.
package reference
