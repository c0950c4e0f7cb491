// Package forerunner is the root of the module: it holds the tests of the rules
// that every package keeps (rules_test.go) and nothing else. README.md says what
// Forerunner is, docs/ARCHITECTURE.md where to find what.
//
// It refuses to hold code that a program could import.
package forerunner
