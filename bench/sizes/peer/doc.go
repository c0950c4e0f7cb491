// Package peer chooses size classes as Buildbarn's feedback-driven analyzer does by its public
// description (ADR 7, 2021, and the comments of its scheduler's configuration), for comparisons. It
// has the numbers that are recommended there.
//
//   - On a smaller class an action may take as long as on the largest, times the ratio of the sizes to
//     the power of Exponent. Successes beyond that count as failures.
//   - The outcomes of each pair of classes are compared as by Mann and Whitney: how likely is a run on
//     the one faster than one on the other, times on smaller classes being divided by what is
//     acceptable, failures slower than any success, one fictitious run of each in addition. This gives
//     a stochastic matrix, and PageRank's stationary distribution is with which probability the action
//     starts on each class.
//   - A failure on a smaller class is hidden by a run on the largest.
//   - If most runs on a class fail, the action runs on the largest, and on the class afterwards, in the
//     background, to learn. A class without outcomes next to one that mostly fails is tried likewise.
//   - An action that never succeeded on the largest class runs on each smaller one in turn, with the
//     least timeout.
//   - After a failure on the largest class the action starts there for a day.
package peer
