// Package budget bounds memory that several holders fill at the will of strangers, such as what is
// known of input roots: one holder may have all of it while there is room, and gets no more when
// there is none and it has more than its equal share.
//
// It frees nothing and waits for nobody. It has no goroutines.
package budget
