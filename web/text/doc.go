// Package text writes figures as operators read them, on pages and at the prompt. What is not
// there is an empty string: each of the two has its own sign for nothing.
package text
