// Package load simulates the clients and workers of a scheduler that is being measured: a thousand
// clients, and workers whose actions take no time. Goroutines end with the context, or with the
// call that started them.
package load
