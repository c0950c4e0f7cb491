// Package bounded has the cache whose bound is a sum of weights, such as bytes, and cuts texts to a
// bound. Where the bound is a number of entries, use golang-lru itself.
package bounded
