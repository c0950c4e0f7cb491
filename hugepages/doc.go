// Package hugepages has the kernel put the memory of a large process on huge pages, where it is in
// use already. A process with gigabytes of small objects waits for the walk through page tables at
// almost every object otherwise.
//
// It is a hint: nothing fails without it. It sets no flag on memory and fills no holes, so the
// process needs no more memory than before, and the Go runtime may return any part of it to the
// kernel. That is why it does not use MADV_HUGEPAGE, with which the kernel gives a whole page to
// whatever first touches a part of it, and fills holes that the runtime has made.
//
// Memory that was read and never written counts as in use, and takes room once it is on a huge page.
// A heap of Go has little of it.
//
// It has no goroutines.
package hugepages
