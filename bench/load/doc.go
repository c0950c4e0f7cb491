// Package load is the clients and workers of a scheduler that is measured: a thousand clients that
// execute, and workers whose actions take no time. Goroutines end with the context, or with the
// call that began them.
package load
