// Package plural writes numbers with their nouns, in messages on pages, on the command line and in
// logs.
package plural
