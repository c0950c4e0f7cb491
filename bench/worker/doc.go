// Package worker measures what a worker adds to its commands: actions that do nothing, large
// outputs, sandboxes, and the verification of what commands read.
package worker
