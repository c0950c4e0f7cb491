// Package budget bounds memory that several holders fill at the will of strangers, such as what is
// known of input roots. Each holder has a share for sure; a pool is for all that they have beyond
// their shares, of which one gets no more than it leaves to the others. So all together never have
// more than there is, whoever comes first.
//
// It frees nothing and waits for nobody. It has no goroutines.
package budget
