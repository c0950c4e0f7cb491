// Package benchtest is what tests of benchmarks share.
package benchtest
