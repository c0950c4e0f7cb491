// Package record says what a small record is to those who keep some (profiles, statistics of
// size classes, looks of former runs) and to the stores that keep them (package records), so that
// neither has to know the other.
//
// Most records are hints: an action is as right without them. Careful keeps the faults of a
// store away from whoever waits for a hint.
package record
