// Package reference writes the contents of package settings for people and their editors: JSON
// schemas, commented examples and pages of the documentation, and the flags of commands. Tests
// compare the files in the repository with its output, and "make generate" writes them.
package reference
