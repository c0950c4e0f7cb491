// Package plural writes numbers with what they count, in messages that people read on pages, at the
// prompt and in logs.
package plural
