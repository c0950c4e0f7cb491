// Package answers asks the scheduler for the data of pages, and limits the load of all pages
// together. After each request it makes none for 20 times as long as that request took, so pages
// cost at most a twentieth of the scheduler's time. The pause is at most half a second, because a
// request that takes longer is slow for another reason: the machine is busy. An answer is used
// again for a second.
//
// The package changes nothing, and gives an answer only to viewers who may see it: see KeyFor. It
// has no goroutines. No mutex is held during a request; callers take turns by a channel.
package answers
