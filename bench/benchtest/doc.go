// Package benchtest has helpers for the tests of benchmarks.
package benchtest
