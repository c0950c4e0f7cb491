// Package worker measures the overhead of a worker: actions that do nothing, large outputs,
// sandboxes, and the verification of inputs that commands read.
package worker
